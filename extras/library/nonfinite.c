/* SPDX-License-Identifier: MIT
 *
 * A step of a model with options.nonfinite reads the whole gradient once, before its kernel does.
 */
#include <float.h>
#include <math.h>

#include "harness/workload/batch_fill.h"
#include "kernels/forward.h"
#include "extras/library/model.h"

/* These two loops have no exit, so compilers vectorize them. */
static bool wide_has(const float *x, int64_t count) {
    int found = 0;
    for (int64_t i = 0; i < count; i++) found |= !(fabsf(x[i]) <= FLT_MAX);
    return found;
}

/* Inf and NaN have all bits of the exponent. */
static bool narrow_has(const uint16_t *x, int64_t count, uint16_t exponent) {
    uint16_t found = 0;
    for (int64_t i = 0; i < count; i++) found |= (x[i] & exponent) == exponent;
    return found;
}

/* Is one of these elements of the gradient inf or NaN? */
static bool has_nonfinite(const struct batch *in, int64_t first, int64_t count) {
    if (in->grad_type == FP32) return wide_has((const float *)in->grad + first, count);
    return narrow_has((const uint16_t *)in->grad + first, count,
                      in->grad_type == BF16 ? 0x7f80 : 0x7c00);
}

/* A max sends each element of a gradient row to the lookup that won its column. */
static bool wins_nonfinite(const struct batch *in, int64_t first, int32_t dim, int64_t lookup) {
    for (int32_t d = 0; d < dim; d++)
        if (in->winners[first + d] == lookup && has_nonfinite(in, first + d, 1)) return true;
    return false;
}

/* The number of lookups that get gradient row u, which has inf or NaN, of a feature. */
static int64_t reached(const struct batch *in, int32_t f, int64_t u) {
    const struct feature *x = &in->features[f];
    const int64_t *offsets = in->offsets + x->first_bag;
    const bool each = x->pooling == POOL_NONE, max = x->pooling == POOL_MAX;
    const int64_t begin = each ? x->first_lookup + u : offsets[u],
                  end = each ? begin + 1 : offsets[u + 1];
    const int32_t dim = in->tables[x->table].dim;
    int64_t count = 0;
    for (int64_t i = begin; i < end; i++)
        count += batch_id(in, i) != x->padding_id &&
                 (!max || wins_nonfinite(in, forward_row(x, u), dim, i - begin));
    return count;
}

/* One thread's part of a feature. All threads of a team call this. */
static void count_part(struct nonfinite *to, const struct batch *in, int32_t f) {
    const struct feature *x = &in->features[f];
    const int32_t dim = in->tables[x->table].dim;
    int64_t bags = 0, lookups = 0;
#pragma omp for nowait
    for (int64_t u = 0; u < feature_rows(x); u++) {
        if (!has_nonfinite(in, forward_row(x, u), dim)) continue;
        const int64_t count = reached(in, f, u);
        bags += count > 0;
        lookups += count;
    }
    if (lookups == 0) return;
    __atomic_fetch_add(&to->so_far.bags, bags, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->so_far.lookups, lookups, __ATOMIC_RELAXED);
    __atomic_store_n(&to->now, true, __ATOMIC_RELAXED);
}

/* Does a gradient without gaps have no inf and no NaN? Reads it in order, whatever its features are. */
static bool all_finite(const struct batch *in, int threads) {
    const int team = in->grad_elements > PARALLEL_FROM ? threads : 1;
    int found = 0;
#pragma omp parallel for reduction(| : found) num_threads(team)
    for (int64_t at = 0; at < in->grad_elements; at += PARALLEL_FROM)
        found |= has_nonfinite(in, at, min64(PARALLEL_FROM, in->grad_elements - at));
    return !found;
}

bool count_nonfinite(struct embfuse_model *m, const struct batch *in) {
    bool any = false;
    if (m->default_layout && all_finite(in, m->threads)) return false;
#pragma omp parallel num_threads(m->threads) if (in->grad_elements > PARALLEL_FROM)
    for (int32_t f = 0; f < in->num_features; f++)
        count_part(&m->nonfinite[in->features[f].table], in, f);
    for (int32_t t = 0; t < m->num_tables; t++) {
        any |= m->nonfinite[t].now;
        m->nonfinite[t].so_far.steps += m->nonfinite[t].now;
        m->nonfinite[t].now = false;
    }
    return any;
}

int embfuse_nonfinite_read(const struct embfuse_model *m, int32_t table,
                           struct embfuse_nonfinite_counts *out, struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!has_table(m, table)) return no_table(table, why);
    if (!out) return said(why, EMBFUSE_INVALID, "out is NULL");
    if (!m->nonfinite_mode)
        return said(why, EMBFUSE_INVALID, "nothing is counted; see options.nonfinite");
    *out = m->nonfinite[table].so_far;
    return 0;
}
