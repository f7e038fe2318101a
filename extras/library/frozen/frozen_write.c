/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "harness/memory.h"
#include "harness/workload/npy.h"
#include "harness/workload/regular_file.h"
#include "kernels/watch.h"
#include "extras/library/frozen/frozen_text.h"
#include "extras/library/frozen/row.h"

enum { CHUNK_BYTES = 4 << 20 }; /* of rows that are converted at once */

static int refuse(const struct frozen *from, int type, int64_t row, struct error *err) {
    float wide[from->dim];
    frozen_row_get(from->type, frozen_row(from, row), from->dim, wide);
    const int32_t d = row_misfit(type, wide, from->dim);
    if (!isfinite(wide[d]))
        return fail(err, "element [%lld][%d] is %g; all elements of a frozen table are finite",
                    (long long)row, d, wide[d]);
    return fail(err, "element [%lld][%d] is %g, which %s cannot hold; use bf16 or fp32",
                (long long)row, d, wide[d], frozen_type_name(type));
}

/* Rows [first, first + count) as that type. Fails at the first row that the type cannot hold. */
static int convert(const struct frozen *from, int type, int64_t first, int64_t count, char *to,
                   struct error *err) {
    const int64_t bytes = frozen_row_bytes(type, from->dim);
    int64_t bad = count;
#pragma omp parallel for reduction(min : bad)
    for (int64_t k = 0; k < count; k++) {
        float wide[from->dim];
        frozen_row_get(from->type, frozen_row(from, first + k), from->dim, wide);
        if (row_misfit(type, wide, from->dim) < from->dim)
            bad = k < bad ? k : bad;
        else
            frozen_row_put(type, wide, from->dim, to + k * bytes);
    }
    return bad == count ? 0 : refuse(from, type, first + bad, err);
}

static int write_rows(const struct frozen *from, int type, FILE *file, XXH3_state_t *sum,
                      struct error *err) {
    const int64_t bytes = frozen_row_bytes(type, from->dim);
    const int64_t most = CHUNK_BYTES / bytes + 1, at_once = most < from->rows ? most : from->rows;
    char *chunk = array_require(at_once, (size_t)bytes, "rows", err);
    int status = chunk ? 0 : -1;
    for (int64_t row = 0; status == 0 && row < from->rows && !ferror(file); row += at_once) {
        const int64_t count = row + at_once < from->rows ? at_once : from->rows - row;
        status = convert(from, type, row, count, chunk, err);
        if (status) break;
        XXH3_64bits_update(sum, chunk, (size_t)(count * bytes));
        fwrite(chunk, 1, (size_t)(count * bytes), file);
    }
    free(chunk);
    return status;
}

static int write_text(const struct frozen_text *t, const char *path, struct error *err) {
    char text[FROZEN_TEXT_MAX];
    frozen_text_print(t, text);
    FILE *file = fopen(path, "w");
    if (!file) return fail(err, "%s: cannot create: %s", path, strerror(errno));
    fputs(text, file);
    return file_end(file, path, err);
}

int frozen_write(const struct frozen *from, int type, const char *rows, const char *text,
                 struct error *err) {
    const int64_t shape[] = {from->rows, from->dim};
    int64_t count;
    if (!text && type == FROZEN_INT8)
        return fail(err, "%s: .npy has no rows with a scale; write int8 as raw rows", rows);
    FILE *file = text ? fopen(rows, "wb")
                      : npy_begin(rows, npy_type_of((enum dtype)type), 2, shape, &count, err);
    if (!file) return text ? fail(err, "%s: cannot create: %s", rows, strerror(errno)) : -1;
    XXH3_state_t *sum = must_have(XXH3_createState());
    XXH3_64bits_reset(sum);
    int status = write_rows(from, type, file, sum, err);
    struct error other;
    const struct frozen_text t = {from->rows, from->dim, type, XXH3_64bits_digest(sum)};
    XXH3_freeState(sum);
    if (file_end(file, rows, status ? &other : err)) status = -1;
    return status == 0 && text ? write_text(&t, text, err) : status;
}

/* The middle of the bin of norm_bin() that has the median of `count` values. */
static double median(const int64_t bins[NORM_BINS], int64_t count) {
    int bin = 0;
    for (int64_t left = (count + 1) / 2; left > bins[bin]; bin++) left -= bins[bin];
    return bin ? sqrt((double)norm_of_bin(bin) * (double)norm_of_bin(bin + 1)) : 0;
}

struct frozen_error frozen_compare(const struct frozen *from, const struct frozen *made) {
    double worst = 0, worst_bound = 0, row_worst = 0, errors = 0, squares = 0;
    int64_t rough = 0, nonzero = 0, zeroed = 0, bins[NORM_BINS] = {0};
#pragma omp parallel for reduction(max : worst, worst_bound, row_worst)                            \
    reduction(+ : errors, squares, rough, nonzero, zeroed, bins)
    for (int64_t row = 0; row < from->rows; row++) {
        float want[from->dim], got[from->dim];
        double row_errors = 0, row_squares = 0, made_squares = 0;
        frozen_row_get(from->type, frozen_row(from, row), from->dim, want);
        frozen_row_get(made->type, frozen_row(made, row), from->dim, got);
        const struct extent x = row_extent(want, from->dim);
        for (int32_t d = 0; d < from->dim; d++) {
            const double error = fabs((double)got[d] - want[d]);
            const double bound = frozen_bound(made->type, want, x, d);
            const double share = error == 0 ? 0 : isnan(error) ? INFINITY : error / bound;
            worst = error > worst ? error : worst;
            worst_bound = share > worst_bound ? share : worst_bound;
            row_errors += error * error;
            row_squares += (double)want[d] * want[d];
            made_squares += (double)got[d] * got[d];
        }
        if (row_squares > 0) {
            const double lost = sqrt(row_errors / row_squares);
            row_worst = lost > row_worst ? lost : row_worst;
            bins[norm_bin((float)lost)]++;
            nonzero++;
            zeroed += made_squares == 0;
        }
        rough += row_errors > FROZEN_ROUGH * FROZEN_ROUGH * row_squares;
        errors += row_errors;
        squares += row_squares;
    }
    return (struct frozen_error){
        .worst = worst,
        .worst_bound = worst_bound,
        .relative_rms = squares > 0 ? sqrt(errors / squares) : 0,
        .row_median = fmin(median(bins, nonzero), row_worst),
        .row_worst = row_worst,
        .nonzero_rows = nonzero,
        .zeroed_rows = zeroed,
        .rough_rows = rough,
    };
}
