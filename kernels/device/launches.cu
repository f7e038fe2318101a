/* SPDX-License-Identifier: MIT
 *
 * The launches of the lean kernels: which instance, and for which tables. */
#include "kernels/device/lean.h"

/* A program may be linked without those of a rule: then its tables take the general way. */
#define X(rule, ...) extern const struct lean_kernels lean_kernels_##rule __attribute__((weak));
RULES(X)
#undef X

static const struct lean_kernels *kernels_of(int rule) {
    switch (rule) {
#define X(name, ...)                                                                               \
    case RULE_##name: return &lean_kernels_##name;
        RULES(X)
#undef X
    default: return NULL;
    }
}

/* The number of a cover among the LEAN_COVERS. */
static int lean_cover(struct cover c) {
    return c.tiles == 2 ? 4 : c.count == 32 ? 3 : c.count == 16 ? 2 : c.count == 8 ? 1 : 0;
}

bool lean_has(struct kind kind) {
    return kernels_of(kind.rule) != NULL;
}

bool lean_takes(const struct runs *r) {
    const int64_t whole = LANE_COLUMNS * dtype_bytes(r->type);
    return lean_has(r->kind) && !r->winners && !r->entries.wide_keys &&
           r->unit_bytes % whole == 0 && r->source_bytes / whole <= UINT32_MAX &&
           (uintptr_t)r->source % (unsigned)whole == 0;
}

cudaError_t lean_update_listed(const struct row_list *list, int64_t most, struct kind kind,
                               struct cover cover, cudaStream_t stream) {
    const struct lean_kernels *k = kernels_of(kind.rule);
    const int c = lean_cover(cover);
    LAUNCH(k->update[c][kind.plain], blocks_for(most, k->batch[c][kind.plain] * LEAN_WARPS),
           LEAN_BLOCK, 0, stream, *list);
    return cudaGetLastError();
}

cudaError_t lean_update(const struct runs *r, cudaStream_t stream) {
    const struct lean_kernels *k = kernels_of(r->kind.rule);
    const struct cover c = cover_of(r->dim);
    LAUNCH(k->sum[lean_cover(c)][r->kind.plain], blocks_for(r->tree.count[0], LEAN_BLOCK / c.count),
           LEAN_BLOCK, 0, stream, *r);
    if (r->tree.levels == 1) return cudaGetLastError();
    tree_enqueue(r, stream);
    const struct row_list list = {
        r->list_key, r->list_place,       r->listed, (uint32_t)r->entries.padding,
        r->partial,  (uint32_t)r->stride, r->target};
    return lean_update_listed(&list, r->tree.count[0], r->kind, c, stream);
}
