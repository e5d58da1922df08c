#include "include/CDesktop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Which source pixels make a result pixel, and how much each: weights of one result pixel add up to
// the axis' unit exactly, so that plain areas keep their colour.
struct axis {
    int *first;
    int *count;
    uint16_t *weights; // `most` for each result pixel
    int most;
};

struct wd_scaler {
    const uint8_t *source;
    size_t row_bytes; // from one row of the source to the next
    int width, height, out_width, out_height;
    struct axis columns, rows;
    uint16_t *sum; // a source row of 4 channels, weighted over rows: 8.8 fixed point
};

enum { ROW_UNIT = 256, COLUMN_UNIT = 32768 };

static void free_axis(struct axis *axis) {
    free(axis->first);
    free(axis->count);
    free(axis->weights);
}

static bool make_axis(struct axis *axis, int in, int out, int unit) {
    double step = (double)in / out;
    bool down = in > out;
    axis->most = down ? (int)ceil(step) + 1 : 2;
    axis->first = malloc(sizeof(int) * (size_t)out);
    axis->count = malloc(sizeof(int) * (size_t)out);
    axis->weights = malloc(sizeof(uint16_t) * (size_t)out * (size_t)axis->most);
    if (axis->first == NULL || axis->count == NULL || axis->weights == NULL) {
        return false;
    }
    for (int i = 0; i < out; i++) {
        uint16_t *weights = axis->weights + (size_t)i * (size_t)axis->most;
        if (down) {
            double from = i * step, to = (i + 1) * step;
            int first = (int)from, n = 0, given = 0;
            for (int k = first; k < in && k < to && n < axis->most; k++, n++) {
                // Rounded as a sum, so that the whole is exact.
                double covered = (fmin(k + 1, to) - from) / (to - from);
                int sum = k + 1 >= to || k + 1 >= in ? unit : (int)lround(covered * unit);
                weights[n] = (uint16_t)(sum - given);
                given = sum;
            }
            weights[n - 1] = (uint16_t)(weights[n - 1] + unit - given);
            axis->first[i] = first;
            axis->count[i] = n;
        } else {
            double centre = (i + 0.5) * step - 0.5;
            int first = (int)floor(centre);
            int second = (int)lround((centre - first) * unit);
            if (first < 0) {
                first = 0;
                second = 0;
            }
            if (first >= in - 1) {
                first = in - 1;
                second = 0;
            }
            weights[0] = (uint16_t)(unit - second);
            weights[1] = (uint16_t)second;
            axis->first[i] = first;
            axis->count[i] = second == 0 ? 1 : 2;
        }
    }
    return true;
}

struct wd_scaler *wd_scaler_new(const uint8_t *bgrx, int row_pixels, int width, int height, int out_width,
                                int out_height) {
    struct wd_scaler *scaler = calloc(1, sizeof *scaler);
    if (scaler == NULL) {
        return NULL;
    }
    scaler->source = bgrx;
    scaler->row_bytes = (size_t)row_pixels * 4;
    scaler->width = width;
    scaler->height = height;
    scaler->out_width = out_width;
    scaler->out_height = out_height;
    scaler->sum = malloc(sizeof(uint16_t) * 4 * (size_t)width);
    if (scaler->sum == NULL || !make_axis(&scaler->columns, width, out_width, COLUMN_UNIT)
        || !make_axis(&scaler->rows, height, out_height, ROW_UNIT)) {
        wd_scaler_free(scaler);
        return NULL;
    }
    return scaler;
}

void wd_scaler_free(struct wd_scaler *scaler) {
    if (scaler == NULL) {
        return;
    }
    free_axis(&scaler->columns);
    free_axis(&scaler->rows);
    free(scaler->sum);
    free(scaler);
}

static void copy_row(const uint8_t *restrict in, uint8_t *restrict rgb, int width) {
    for (int x = 0; x < width; x++) {
        rgb[3 * x] = in[4 * x + 2];
        rgb[3 * x + 1] = in[4 * x + 1];
        rgb[3 * x + 2] = in[4 * x];
    }
}

void wd_scaler_row(struct wd_scaler *scaler, int y, uint8_t *rgb) {
    size_t samples = (size_t)scaler->width * 4;
    if (scaler->width == scaler->out_width && scaler->height == scaler->out_height) {
        copy_row(scaler->source + scaler->row_bytes * (size_t)y, rgb, scaler->width);
        return;
    }
    // Rows first: all channels of a row are alike, which the compiler turns into vectors.
    uint16_t *restrict sum = scaler->sum;
    const uint16_t *weights = scaler->rows.weights + (size_t)y * (size_t)scaler->rows.most;
    for (int k = 0; k < scaler->rows.count[y]; k++) {
        const uint8_t *restrict in = scaler->source + scaler->row_bytes * (size_t)(scaler->rows.first[y] + k);
        uint16_t weight = weights[k];
        if (k == 0) {
            for (size_t i = 0; i < samples; i++) {
                sum[i] = (uint16_t)(in[i] * weight);
            }
        } else {
            for (size_t i = 0; i < samples; i++) {
                sum[i] = (uint16_t)(sum[i] + in[i] * weight);
            }
        }
    }
    // 8.8 times 1.15: 23 bits below the point.
    const uint32_t half = 1u << 22;
    for (int x = 0; x < scaler->out_width; x++) {
        const uint16_t *in = sum + 4 * (size_t)scaler->columns.first[x];
        const uint16_t *weight = scaler->columns.weights + (size_t)x * (size_t)scaler->columns.most;
        uint32_t red = half, green = half, blue = half;
        for (int k = 0; k < scaler->columns.count[x]; k++, in += 4) {
            blue += in[0] * (uint32_t)weight[k];
            green += in[1] * (uint32_t)weight[k];
            red += in[2] * (uint32_t)weight[k];
        }
        rgb[3 * x] = (uint8_t)(red >> 23);
        rgb[3 * x + 1] = (uint8_t)(green >> 23);
        rgb[3 * x + 2] = (uint8_t)(blue >> 23);
    }
}
