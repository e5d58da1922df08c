#include "include/CDesktop.h"

void wd_base64(const void *bytes, size_t count, void *text) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *in = bytes;
    char *out = text;
    size_t i = 0;
    for (; i + 2 < count; i += 3, out += 4) {
        uint32_t group = (uint32_t)in[i] << 16 | (uint32_t)in[i + 1] << 8 | in[i + 2];
        out[0] = digits[group >> 18];
        out[1] = digits[group >> 12 & 63];
        out[2] = digits[group >> 6 & 63];
        out[3] = digits[group & 63];
    }
    if (i < count) {
        bool two = i + 1 < count;
        uint32_t group = (uint32_t)in[i] << 16 | (two ? (uint32_t)in[i + 1] << 8 : 0);
        out[0] = digits[group >> 18];
        out[1] = digits[group >> 12 & 63];
        out[2] = two ? digits[group >> 6 & 63] : '=';
        out[3] = '=';
    }
}
