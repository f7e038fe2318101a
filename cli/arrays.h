/* SPDX-License-Identifier: MIT
 *
 * Checks .npy arrays beyond their format: type, shape, finite numbers.
 */
#pragma once

#include <stdbool.h>

#include "harness/workload/npy.h"
#include "harness/error.h"

/* Reads float32, or elements that a file holds as that type: npy_type_of(). If finite is set, refuses NaN and
 * infinities and names the first element. */
int array_read(const char *path, enum dtype as, bool finite, struct npy *out, struct error *err);

/* The type of the elements of such an array. */
static inline enum dtype array_type(const struct npy *a) {
    return npy_dtype(a->type);
}

static inline bool array_is_shaped(const struct npy *a, int num_dims, const int64_t *shape) {
    bool same = a->num_dims == num_dims;
    for (int d = 0; same && d < num_dims; d++) same = a->shape[d] == shape[d];
    return same;
}

/* Fails unless the array has this shape. The message names both shapes; what explains this one. */
int array_want_shape(const char *path, const struct npy *a, int num_dims, const int64_t *shape,
                     const char *what, struct error *err);
