// The text in a message of the extended clipboard (rfbproto): a zlib stream of the length in 4 bytes and the
// UTF-8, with CR LF line ends and a NUL at its end.
#include "include/CDesktop.h"
#include "libraries.h"

#include <stdlib.h>

// Inflates exactly `count` bytes.
static bool inflate_bytes(z_stream *stream, void *bytes, size_t count) {
    stream->next_out = bytes;
    stream->avail_out = (unsigned)count;
    while (stream->avail_out > 0) {
        int result = wd_zlib.inflate(stream, Z_SYNC_FLUSH);
        if (result != Z_OK && !(result == Z_STREAM_END && stream->avail_out == 0)) {
            return false;
        }
    }
    return true;
}

// Removes the CR of each CR LF, and what follows a NUL. Returns the bytes that are left.
static size_t to_lines(uint8_t *bytes, size_t count) {
    size_t left = 0;
    for (size_t i = 0; i < count && bytes[i] != 0; i++) {
        if (!(bytes[i] == '\r' && i + 1 < count && bytes[i + 1] == '\n')) {
            bytes[left++] = bytes[i];
        }
    }
    return left;
}

bool wd_clipboard_decode(const uint8_t *bytes, size_t count, size_t limit, struct wd_bytes *text) {
    text->bytes = NULL;
    text->count = 0;
    z_stream stream = {.next_in = (uint8_t *)bytes, .avail_in = (unsigned)count};
    if (bytes == NULL || wd_zlib.inflateInit_(&stream, ZLIB_VERSION, sizeof stream) != Z_OK) {
        return false;
    }
    uint8_t size[4];
    bool good = inflate_bytes(&stream, size, 4);
    size_t length = good ? (size_t)size[0] << 24 | (size_t)size[1] << 16 | (size_t)size[2] << 8 | size[3] : 0;
    // A line end has two bytes, and the NUL counts, too.
    good = good && length <= 2 * limit + 1;
    uint8_t *plain = good ? malloc(length + 1) : NULL;
    good = plain != NULL && inflate_bytes(&stream, plain, length);
    wd_zlib.inflateEnd(&stream);
    size_t left = good ? to_lines(plain, length) : 0;
    if (!good || left > limit) {
        free(plain);
        return false;
    }
    text->bytes = plain;
    text->count = left;
    return true;
}
