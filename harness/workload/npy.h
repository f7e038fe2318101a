/* SPDX-License-Identifier: MIT
 *
 * NumPy's .npy files, format versions 1.0 to 3.0, C order, little endian: the suite's exchange
 * format.
 */
#ifndef EMBFUSE_NPY_H
#define EMBFUSE_NPY_H

#include <stdint.h>

#include "harness/error.h"

enum npy_type { NPY_FLOAT32, NPY_INT32, NPY_INT64 };
enum { NPY_MAX_DIMS = 4 };

struct npy {
    enum npy_type type;
    int num_dims;
    int64_t shape[NPY_MAX_DIMS];
    int64_t count; /* product of shape */
    void *data;    /* owned, [count] elements */
};

/* Reads a whole file. On failure fills err (file, what is wrong) and leaves *out zeroed. */
int npy_read(const char *path, struct npy *out, struct error *err);

/* The same from memory: what npy_read does with the bytes of a file; name is for messages. */
int npy_parse(const char *name, const void *bytes, uint64_t size, struct npy *out,
              struct error *err);

/* Reads one dimension of int32 or int64; npy_int() gives its elements. */
int npy_read_ints(const char *path, struct npy *out, struct error *err);

static inline int64_t npy_int(const struct npy *a, int64_t i) {
    return a->type == NPY_INT32 ? ((const int32_t *)a->data)[i] : ((const int64_t *)a->data)[i];
}

/* Writes the file, or leaves none: callers rename it when all their files are complete. */
int npy_write(const char *path, enum npy_type type, int num_dims, const int64_t *shape,
              const void *data, struct error *err);

void npy_free(struct npy *a);

#endif
