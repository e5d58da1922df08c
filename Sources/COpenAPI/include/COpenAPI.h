#ifndef COPENAPI_H
#define COPENAPI_H

#include <stddef.h>

/// docs/openapi.yaml as JSON, without a NUL at its end.
const void *wa_openapi_json(void);
/// Its bytes.
size_t wa_openapi_json_size(void);

#endif
