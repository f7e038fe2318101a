/* SPDX-License-Identifier: MIT
 *
 * Frozen tables: weights as a server keeps them, read-only and mapped. A table is either
 *
 *   NAME.rows and NAME.table   raw rows, and a text that describes them
 *   FILE.npy                   [rows][dim] of a type that .npy has: not int8
 *
 * NAME.rows holds rows * row_bytes bytes, row after row, without a header or gaps: a row is found at
 * id * row_bytes, and numpy.fromfile reads it. Elements are little endian. NAME.table is
 *
 *     embfuse frozen table 1            the version of the format
 *     rows 1000
 *     dim 64
 *     type int8                         fp32, bf16, fp16, fp8 or int8
 *     row_bytes 72
 *     bytes 72000                       of NAME.rows
 *     xxh3 0123456789abcdef             XXH3-64 of NAME.rows
 *     end 0123456789abcdef              XXH3-64 of the lines above
 *
 * An int8 row is dim codes (uint8), then scale and bias (fp32, not aligned); element d is
 * scale * code[d] + bias. This is the layout of FBGEMM's "fused 8-bit rowwise" tables
 * (FloatOrHalfToFused8BitRowwiseQuantizedSBFloat in its src/QuantUtils.cc), so its lookups read it. The
 * codes can differ: FBGEMM adds 1e-8 to the range of a row, which costs small rows their precision.
 * Here an element is within scale / 2, and rounding, of its value, however small the row is.
 *
 * A mapped file must not be written in place: replace it by another, as embfuse export does, and open
 * it again.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "harness/error.h"
#include "kernels/kernel.h"

/* The types of enum dtype, and: */
enum { FROZEN_INT8 = DTYPE_COUNT, FROZEN_TYPES };
enum { FROZEN_DIM_MAX = 65536 };

struct frozen {
    int type; /* enum dtype, or FROZEN_INT8 */
    int64_t rows;
    int32_t dim;
    int64_t row_bytes;
    const char *data; /* [rows][row_bytes] */
    void *mapping;
    size_t mapped; /* bytes */
};

const char *frozen_type_name(int type);

/* The type of that name; -1: err. */
int frozen_type_find(const char *name, struct error *err);

int64_t frozen_row_bytes(int type, int32_t dim);

static inline const void *frozen_row(const struct frozen *t, int64_t row) {
    return t->data + row * t->row_bytes;
}

/* How a table is opened; the values add. */
enum frozen_how {
    FROZEN_LOOKUP = 0, /* rows are read in any order: the system does not read ahead */
    FROZEN_SCAN = 1,   /* all rows are read, in order */
    FROZEN_VERIFY = 2, /* reads NAME.rows once, and compares its checksum; a .npy has none */
};

/* Maps a table. name: FILE.npy, or NAME. Checks the size of the files and the text. 0, or -1 with err and
 * nothing left open. */
int frozen_open(const char *name, int how, struct frozen *out, struct error *err);

/* The same for raw rows in files of these names. */
int frozen_open_raw(const char *rows, const char *text, int how, struct frozen *out,
                    struct error *err);

/* The same for a .npy of any name. */
int frozen_open_npy(const char *path, int how, struct frozen *out, struct error *err);

void frozen_close(struct frozen *t);

/* Writes the rows of a table as another type, to `rows` with the description `text`, or, if text is
 * NULL, as .npy. Refuses elements that are not finite or beyond the type, and names the first. On
 * failure files may be left, incomplete. */
int frozen_write(const struct frozen *from, int type, const char *rows, const char *text,
                 struct error *err);

/* How far `made` is from the table that it was written from. */
struct frozen_error {
    double worst;        /* largest error */
    double worst_bound;  /* largest error / bound of the type; wrong if it is above 1 */
    double relative_rms; /* root of (sum of squared errors / sum of squares); 0 if all is 0 */
    /* Of nonzero rows: the L2 norm of the error divided by that of the row. The median is to about 6 %. */
    double row_median, row_worst;
    int64_t nonzero_rows, zeroed_rows; /* zeroed: nonzero rows that are all 0 now */
    int64_t rough_rows;                /* whose error is longer than FROZEN_ROUGH of the row */
};
/* Within its range no type errs by more than 2^-4 of an element (fp8), so what is above comes from elements that are
 * below the range, or from one that is far above the others (int8 of more than 1900 columns). */
#define FROZEN_ROUGH 0.1
struct frozen_error frozen_compare(const struct frozen *from, const struct frozen *made);

/* The forward of a batch of one feature, as kernels/forward.h has it, on `threads` threads: the same
 * bits as a forward kernel for the types of enum dtype. int8: the sum over the lookups of
 * weight * (scale * code + bias), each operation in fp32. output: the elements that forward_row()
 * places, in in->grad_type. The caller has validated the batch against rows and dim. Any number of
 * threads may look up at once. */
void frozen_lookup(const struct frozen *t, const struct batch *in, void *output, int threads);

/* One bag of a batch of one feature, as a batch whose feature is *feature. Its output lies where that of bag 0 lies. */
static inline struct batch frozen_one_bag(const struct batch *in, int64_t bag,
                                          struct feature *feature) {
    struct batch one = *in;
    *feature = *in->features;
    feature->bags = one.flat_bags = 1;
    feature->first_bag += bag;
    feature->first_lookup = in->offsets[bag];
    feature->lookups = one.lookups = in->offsets[bag + 1] - in->offsets[bag];
    one.features = feature;
    return one;
}
