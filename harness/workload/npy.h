/* SPDX-License-Identifier: MIT
 *
 * NumPy's .npy files, format versions 1.0 to 3.0, C order, little endian: the suite's exchange
 * format.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "harness/error.h"
#include "kernels/dtype.h"

/* NumPy has no bf16 and no fp8: they are uint16 and uint8 in files. */
enum npy_type { NPY_FLOAT32, NPY_FLOAT16, NPY_INT32, NPY_INT64, NPY_UINT16, NPY_UINT8 };
enum { NPY_MAX_DIMS = 4 };

static inline enum npy_type npy_type_of(enum dtype type) {
    return type == FP32   ? NPY_FLOAT32
           : type == FP16 ? NPY_FLOAT16
           : type == BF16 ? NPY_UINT16
                          : NPY_UINT8;
}

/* The inverse, for all types but integers of 4 or 8 bytes. */
static inline enum dtype npy_dtype(enum npy_type type) {
    return type == NPY_FLOAT32   ? FP32
           : type == NPY_FLOAT16 ? FP16
           : type == NPY_UINT16  ? BF16
                                 : FP8;
}

struct npy {
    enum npy_type type;
    int num_dims;
    int64_t shape[NPY_MAX_DIMS];
    int64_t count; /* product of shape */
    void *data;    /* owned, [count] elements, from array_alloc() */
};

/* The name of a type in messages; int32 and int64 are both "integers". */
static inline const char *npy_type_name(enum npy_type type) {
    return type == NPY_FLOAT32   ? "float32"
           : type == NPY_FLOAT16 ? "float16"
           : type == NPY_UINT16  ? "uint16"
           : type == NPY_UINT8   ? "uint8"
                                 : "integers";
}

size_t npy_element_bytes(enum npy_type type);

/* Reads a whole file. On failure fills err (file, what is wrong) and leaves *out zeroed. */
int npy_read(const char *path, struct npy *out, struct error *err);

/* Reads the bytes of a file from memory; name is for messages. */
int npy_parse(const char *name, const void *bytes, uint64_t size, struct npy *out,
              struct error *err);

/* Does the same without a copy: data points into bytes, and is not owned. */
int npy_view(const char *name, const void *bytes, uint64_t size, struct npy *out,
             struct error *err);

/* Reads the header of a file of `size` bytes from its first `have` bytes: out->data is NULL, and the elements begin
 * at byte *begin. */
int npy_head(const char *name, const void *bytes, uint64_t have, uint64_t size, struct npy *out,
             uint64_t *begin, struct error *err);

/* Reads a file with a one-dimensional array of int32 or int64. */
int npy_read_ints(const char *path, struct npy *out, struct error *err);

/* Does the same and widens to int64. The caller frees the elements. Returns NULL on failure, with the reason in err. */
int64_t *npy_read_int64s(const char *path, int64_t *count, struct error *err);

/* Writes the file, or leaves none: callers rename it when all their files are complete. */
int npy_write(const char *path, enum npy_type type, int num_dims, const int64_t *shape,
              const void *data, struct error *err);

/* Writes all bytes before the elements as NumPy does, version 1.0, and returns their number. The shape must fit:
 * num_dims <= NPY_MAX_DIMS, no dimension below 0. */
enum { NPY_HEADER_MAX = 256 };
size_t npy_header(char out[NPY_HEADER_MAX], enum npy_type type, int num_dims, const int64_t *shape);

/* Creates the file and writes its header; the caller writes `*count` elements and calls file_end(). Returns NULL on
 * failure, with the reason in err. */
FILE *npy_begin(const char *path, enum npy_type type, int num_dims, const int64_t *shape,
                int64_t *count, struct error *err);

void npy_free(struct npy *a);
