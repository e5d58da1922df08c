#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <string.h>

const void *wa_find(const void *bytes, size_t count, const void *needle, size_t length) {
    return memmem(bytes, count, needle, length);
}

const void *wa_find_last(const void *bytes, size_t count, uint8_t byte) { return memrchr(bytes, byte, count); }

size_t wa_count(const uint8_t *bytes, size_t count, uint8_t byte) {
    size_t total = 0;
    while (count > 0) {
        // Blocks whose number fits into a byte are counted many bytes at once.
        size_t block = count < 255 ? count : 255;
        uint8_t found = 0;
        for (size_t index = 0; index < block; index++) found = (uint8_t)(found + (bytes[index] == byte));
        total += found;
        bytes += block;
        count -= block;
    }
    return total;
}
