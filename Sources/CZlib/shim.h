#include <zlib.h>

// What zlib declares as macros.

/// Prepares to write the gzip format. Level 1 (fast) to 9 (small).
static inline int wz_deflate_init(z_stream *stream, int level) {
    return deflateInit2(stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
}

/// Prepares to read the gzip format.
static inline int wz_inflate_init(z_stream *stream) { return inflateInit2(stream, 15 + 16); }
