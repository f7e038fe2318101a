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
    char place[SHAPE_TEXT_MAX];
    for (int64_t i = 0; i < a->count; i++) {
        const float x = dtype_get(array_type(a), a->data, i);
        if (!isfinite(x))
            return fail(err, "%s: element %s is %g; all must be finite, or give --no-check", path,
                        place_text(a, i, place), x);
    }
    return 0;
}

int array_read(const char *path, enum dtype as, bool finite, struct npy *out, struct error *err) {
    static const char *const also[] = {[FP32] = "",
                                       [BF16] = ", or bf16 as uint16,",
                                       [FP16] = " or float16",
                                       [FP8] = ", or fp8 as uint8,"};
    if (npy_read(path, out, err)) return -1;
    int status = 0;
    if (out->type != NPY_FLOAT32 && out->type != npy_type_of(as))
        status = fail(err, "%s: %s, but float32%s is needed; %s", path, npy_type_name(out->type),
                      also[as],
                      out->type == NPY_UINT16  ? "say bf16 in PREFIX.batch"
                      : out->type == NPY_UINT8 ? "say fp8 in PREFIX.batch"
                                               : "use astype('float32')");
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
