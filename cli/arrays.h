/* SPDX-License-Identifier: MIT
 *
 * Checks .npy arrays beyond their format: type, shape, finite numbers.
 */
#ifndef EMBFUSE_CLI_ARRAYS_H
#define EMBFUSE_CLI_ARRAYS_H

#include <stdbool.h>

#include "harness/workload/npy.h"
#include "harness/error.h"

/* Reads float32. If finite is set, refuses NaN and infinities and names the first element. */
int array_read_floats(const char *path, bool finite, struct npy *out, struct error *err);

static inline bool array_is_shaped(const struct npy *a, int num_dims, const int64_t *shape) {
    bool same = a->num_dims == num_dims;
    for (int d = 0; same && d < num_dims; d++) same = a->shape[d] == shape[d];
    return same;
}

/* Fails unless the array has this shape. The message names both shapes; what explains this one. */
int array_want_shape(const char *path, const struct npy *a, int num_dims, const int64_t *shape,
                     const char *what, struct error *err);

#endif
