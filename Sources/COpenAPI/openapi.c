#include "COpenAPI.h"

// The compiler takes #embed in every version of C, and says so.
#pragma clang diagnostic ignored "-Wc23-extensions"

// Made by scripts/openapi.py.
static const unsigned char json[] = {
#embed "openapi.json"
};

const void *wa_openapi_json(void) { return json; }
size_t wa_openapi_json_size(void) { return sizeof json; }
