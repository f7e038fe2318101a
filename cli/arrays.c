/* SPDX-License-Identifier: MIT */
#include "cli/arrays.h"

#include <math.h>
#include <stdio.h>

enum { SHAPE_TEXT_MAX = NPY_MAX_DIMS * 24 };

/* "[2][3]"; "[]" for a single number */
static const char *shape_text(int num_dims, const int64_t *shape, char text[SHAPE_TEXT_MAX]) {
    int used = num_dims ? 0 : sprintf(text, "[]");
    for (int d = 0; d < num_dims; d++) used += sprintf(text + used, "[%lld]", (long long)shape[d]);
    return text;
}

/* The index of element i, as text. */
static const char *place_text(const struct npy *a, int64_t i, char text[SHAPE_TEXT_MAX]) {
    int64_t place[NPY_MAX_DIMS];
    for (int d = a->num_dims - 1; d >= 0; d--) {
        place[d] = i % a->shape[d];
        i /= a->shape[d];
    }
    return shape_text(a->num_dims, place, text);
}

static int check_finite(const char *path, const struct npy *a, struct error *err) {
    const float *x = a->data;
    char place[SHAPE_TEXT_MAX];
    for (int64_t i = 0; i < a->count; i++)
        if (!isfinite(x[i]))
            return fail(err, "%s: element %s is %g; all must be finite, or give --no-check", path,
                        place_text(a, i, place), x[i]);
    return 0;
}

int array_read_floats(const char *path, bool finite, struct npy *out, struct error *err) {
    if (npy_read(path, out, err)) return -1;
    int status = 0;
    if (out->type != NPY_FLOAT32)
        status = fail(err, "%s: integers, but float32 is needed; use astype('float32')", path);
    if (status == 0 && finite) status = check_finite(path, out, err);
    if (status) npy_free(out);
    return status;
}

int array_want_shape(const char *path, const struct npy *a, int num_dims, const int64_t *shape,
                     const char *what, struct error *err) {
    char is[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (array_is_shaped(a, num_dims, shape)) return 0;
    return fail(err, "%s: shape %s, wanted %s: %s", path, shape_text(a->num_dims, a->shape, is),
                shape_text(num_dims, shape, want), what);
}
