/* SPDX-License-Identifier: MIT
 *
 * Launches the kernels of a rule for a kind of tables.
 */
#include "kernels/device/classes.cuh"
#include "kernels/device/lean.h"

/* A program may be linked without the kernels of a rule: then tables with that rule are an error. */
#define X(rule, ...) extern const struct rule_kernels rule_kernels_##rule __attribute__((weak));
RULES(X)
#undef X

static const struct rule_kernels *kernels_of(enum rule_kind rule) {
    switch (rule) {
#define X(name, ...)                                                                               \
    case RULE_##name: return &rule_kernels_##name;
        RULES(X)
#undef X
    default: return NULL;
    }
}

static cudaError_t update_kind(const struct row_list *list, int64_t most, cudaStream_t stream) {
    const struct rule_kernels *k = kernels_of(list->kind.rule);
    if (!k) return cudaErrorNotSupported;
    if (list->kind.way == WAY_GENERAL)
        k->update_general(list, most, stream);
    else
        k->update[list->kind.cover][list->kind.way == WAY_PLAIN](list, most, stream);
    return cudaGetLastError();
}

cudaError_t rows_update(const struct row_list *list, int64_t most, const struct batch *in,
                        cudaStream_t stream) {
    const struct classes c = classes_of(in);
    cudaError_t status = cudaSuccess;
    for (int k = 0; k < c.count && status == cudaSuccess; k++) {
        struct row_list of_kind = *list;
        of_kind.kind = c.of[k].kind;
        of_kind.mixed = c.count > 1;
        of_kind.general = c.general;
        status = update_kind(&of_kind, most, stream);
    }
    return status;
}

cudaError_t runs_update(const struct runs *r, cudaStream_t stream) {
    const struct rule_kernels *k = kernels_of(r->kind.rule);
    if (r->entries.count == 0) return cudaSuccess;
    if (!k) return cudaErrorNotSupported;
    if (r->kind.way == WAY_GENERAL || !r->aligned)
        k->sum_general(r, stream);
    else
        k->sum[r->kind.cover][r->kind.way == WAY_PLAIN](r, stream);
    if (r->tree.levels == 1) return cudaGetLastError();
    tree_enqueue(r, stream);
    const struct row_list list = {r->list_key, r->list_place,       r->listed, r->entries.padding,
                                  r->partial,  (uint32_t)r->stride, NULL,      r->target,
                                  r->kind};
    return update_kind(&list, r->tree.count[0], stream);
}
