#include "include/CDesktop.h"
#include "libraries.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

// libpng leaves its functions with longjmp when something fails; what has to be freed is in here,
// not in variables that the jump would leave undefined.
struct encoding {
    jmp_buf failed;
    png_structp png;
    png_infop info;
    struct wd_scaler *scaler;
    uint8_t *row;
    uint8_t *bytes;
    size_t count, capacity;
    char *why;
    size_t why_capacity;
};

static void on_error(png_structp png, png_const_charp message) {
    struct encoding *encoding = wd_png.png_get_error_ptr(png);
    snprintf(encoding->why, encoding->why_capacity, "%s", message);
    longjmp(encoding->failed, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void on_write(png_structp png, png_bytep bytes, size_t count) {
    struct encoding *encoding = wd_png.png_get_io_ptr(png);
    if (encoding->capacity - encoding->count < count) {
        size_t capacity = (encoding->capacity + count) * 2;
        uint8_t *grown = realloc(encoding->bytes, capacity);
        if (grown == NULL) {
            wd_png.png_error(png, "out of memory");
        }
        encoding->bytes = grown;
        encoding->capacity = capacity;
    }
    memcpy(encoding->bytes + encoding->count, bytes, count);
    encoding->count += count;
}

static void on_flush(png_structp png) { (void)png; }

static bool encode(struct encoding *e, int width, int height) {
    if (setjmp(e->failed) != 0) {
        return false;
    }
    e->png = wd_png.png_create_write_struct(PNG_LIBPNG_VER_STRING, e, on_error, on_warning);
    e->info = e->png == NULL ? NULL : wd_png.png_create_info_struct(e->png);
    if (e->info == NULL) {
        snprintf(e->why, e->why_capacity, "libpng refused to begin");
        return false;
    }
    wd_png.png_set_write_fn(e->png, e, on_write, on_flush);
    wd_png.png_set_IHDR(
        e->png, e->info, (unsigned)width, (unsigned)height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
        PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    // Measured: docs/decisions.md.
    wd_png.png_set_compression_level(e->png, 1);
    wd_png.png_set_compression_strategy(e->png, Z_DEFAULT_STRATEGY);
    wd_png.png_set_compression_buffer_size(e->png, 64 << 10);
    wd_png.png_set_filter(e->png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
    wd_png.png_write_info(e->png, e->info);
    for (int y = 0; y < height; y++) {
        wd_scaler_row(e->scaler, y, e->row);
        wd_png.png_write_row(e->png, e->row);
    }
    wd_png.png_write_end(e->png, e->info);
    return true;
}

bool wd_png_encode(const uint8_t *bgrx, int row_pixels, int width, int height, int out_width,
                   int out_height, struct wd_bytes *out, char *why, size_t capacity) {
    out->bytes = NULL;
    out->count = 0;
    struct encoding *e = calloc(1, sizeof *e);
    if (e == NULL) {
        snprintf(why, capacity, "out of memory");
        return false;
    }
    e->why = why;
    e->why_capacity = capacity;
    e->scaler = wd_scaler_new(bgrx, row_pixels, width, height, out_width, out_height);
    e->row = malloc((size_t)out_width * 3);
    bool done = false;
    if (e->scaler == NULL || e->row == NULL) {
        snprintf(why, capacity, "out of memory");
    } else {
        done = encode(e, out_width, out_height);
    }
    if (e->png != NULL) {
        wd_png.png_destroy_write_struct(&e->png, &e->info);
    }
    wd_scaler_free(e->scaler);
    free(e->row);
    if (done) {
        out->bytes = e->bytes;
        out->count = e->count;
    } else {
        free(e->bytes);
    }
    free(e);
    return done;
}

bool wd_png_decode(const uint8_t *png, size_t count, struct wd_bytes *out, int *width, int *height,
                   char *why, size_t capacity) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    out->bytes = NULL;
    out->count = 0;
    if (wd_png.png_image_begin_read_from_memory(&image, png, count)) {
        image.format = PNG_FORMAT_BGRA;
        size_t bytes = PNG_IMAGE_SIZE(image);
        uint8_t *pixels = malloc(bytes);
        // With NULL the library fails by itself and says why.
        if (wd_png.png_image_finish_read(&image, NULL, pixels, 0, NULL)) {
            out->bytes = pixels;
            out->count = bytes;
            *width = (int)image.width;
            *height = (int)image.height;
        } else {
            free(pixels);
        }
    }
    if (out->bytes == NULL) {
        snprintf(why, capacity, "%s", image.message);
    }
    wd_png.png_image_free(&image);
    return out->bytes != NULL;
}
