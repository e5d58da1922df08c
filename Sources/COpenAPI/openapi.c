#include "COpenAPI.h"

// Made by scripts/openapi.py.
static const unsigned char json[] = {
#embed "openapi.json"
};

const void *wa_openapi_json(void) { return json; }
size_t wa_openapi_json_size(void) { return sizeof json; }
