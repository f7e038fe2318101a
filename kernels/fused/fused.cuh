/* SPDX-License-Identifier: MIT
 *
 * The two halves of the fused kernels: the index, which needs only the ids, and the sum with the
 * update. The kernels differ in when they do the first half.
 */
#pragma once

#include "kernels/device/order.cuh"
#include "kernels/device/runs.cuh"
#include "kernels/device/small.cuh"
#include "kernels/device/sorted.cuh"

struct fused {
    struct small small;
    struct sorted sorted; /* the lookups of tables that are not small */
    struct classes classes;
    struct key_range *ranges;   /* [num_tables]; NULL: one class */
    struct placed_table *order; /* the same */
    struct runs runs[CLASSES_MOST];
    struct counters counters;
};

static size_t fused_lay_out(struct fused *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    small_lay_out(&p->small, &s, in);
    p->classes = classes_of(in, [&](int32_t t) {
        return is_small(&in->tables[t]) ? (int64_t)0 : in->tables[t].lookups;
    });
    const struct classes *c = &p->classes;
    const bool several = c->count > 1;
    sorted_lay_out(&p->sorted, &s, in, in->lookups - p->small.lookups,
                   several ? c->of[c->count - 1].padding : largest_key(in));
    p->ranges = NULL;
    p->order = NULL;
    if (several) {
        p->ranges = (struct key_range *)scratch_take(&s, in->num_tables, sizeof *p->ranges);
        p->order = (struct placed_table *)scratch_take(&s, in->num_tables, sizeof *p->order);
    }
    p->sorted.entries.ranges = p->ranges;
    for (int k = 0; k < c->count; k++)
        runs_lay_out(&p->runs[k], &s, in, c->of[k].entries, c->of[k].dim);
    p->counters = counters_take(p->runs, c->count, &s);
    return s.used;
}

static size_t fused_scratch_bytes(const struct batch *shape, int) {
    struct fused p;
    return fused_lay_out(&p, shape, NULL);
}

static const char *fused_accepts(const struct batch *in) {
    return in->num_tables > 65535 ? "more than 65535 tables" : entries_refuse(in);
}

/* Enqueues the first half. */
static cudaError_t fused_index(struct fused *p, const struct batch *in, cudaStream_t stream) {
    const struct before *before = p->small.before;
    mean_scales_fill(in, p->sorted.scale, stream);
    if (before) small_count(&p->small, in, stream);
    if (p->order)
        LAUNCH(order_tables, 1, SCAN_BLOCK, 0, stream, *in, p->classes, p->ranges, p->order);
    return sorted_fill(&p->sorted, in, before, p->counters.at, p->counters.count, stream);
}

/* The sorted entries of class k. */
static struct entries fused_entries(const struct fused *p, int k) {
    struct entries e = sorted_entries(&p->sorted);
    int64_t first = 0;
    for (int j = 0; j < k; j++) first += p->classes.of[j].entries;
    e.key = (char *)e.key + first * (int64_t)key_bytes(&e);
    e.value = (char *)e.value + first * (int64_t)value_bytes(&e);
    e.count = p->classes.of[k].entries;
    if (p->order) e.padding = (uint64_t)p->classes.of[k].padding;
    return e;
}

/* Enqueues the second half, on the entries of the first half: a launch of update() for each class. */
static cudaError_t fused_update(struct fused *p, const struct batch *in,
                                const struct rule_step *steps, const struct table *io,
                                cudaStream_t stream, decltype(runs_update) *update = runs_update) {
    struct target to = target_of(in, steps, io);
    cudaError_t status = small_run(&p->small, in, p->sorted.scale, &to, stream);
    to.order = p->order;
    for (int k = 0; k < p->classes.count && status == cudaSuccess; k++) {
        p->runs[k].entries = fused_entries(p, k);
        p->runs[k].target = to;
        status = update(&p->runs[k], in, stream);
    }
    return status;
}
