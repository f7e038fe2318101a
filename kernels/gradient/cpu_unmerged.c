/* SPDX-License-Identifier: MIT
 *
 * The unmerged gradient: a row and a copy of its gradient for every lookup.
 *
 * Who owns what: threads take equal parts of the lookups. They count the entries of each table first,
 * and so know where their own begin.
 * Scratch and traffic: 4 bytes per thread and table; reads ids once, twice with padding, and gradient
 * rows in their order; writes [lookups][dim] floats once.
 * Deterministic: every value is one product.
 * Wins where hardly any row repeats: it groups nothing. But only linear rules can take it as it is.
 * Source: the backward of torch.nn.EmbeddingBag(sparse=True), lookup_table_v2_grad of Paddle.
 */
#include <omp.h>
#include <string.h>

#include "kernels/gradient.h"
#include "kernels/host/row.h"
#include "kernels/host/team.h"

struct layout {
    struct gather gather;
    struct sparse_gradient *to; /* [num_tables] */
    uint32_t *next;             /* [threads][num_tables] counts, then a thread's next entries */
    uint32_t *first;            /* [num_tables + 1] entries of earlier tables */
};

static size_t lay_out(struct layout *p, const struct batch *in, int threads, void *base) {
    struct scratch s = {base, 0};
    gather_lay_out(&p->gather, &s, in, false);
    p->to = scratch_take(&s, in->num_tables, sizeof *p->to);
    p->next = scratch_take(&s, (int64_t)threads * in->num_tables, sizeof *p->next);
    p->first = scratch_take(&s, in->num_tables + 1, sizeof *p->first);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return lay_out(&(struct layout){0}, shape, threads, NULL);
}

ALWAYS_INLINE void count_lookup(void *ctx, struct lookup l) {
    (void)l;
    ++*(uint32_t *)ctx;
}

/* The only row of a sum, without a mask. */
ALWAYS_INLINE struct summand one_row(const void *ctx, int64_t k) {
    const struct summand *x = ctx;
    (void)k;
    return (struct summand){x->row, x->coefficient, {NULL, 0}}; /* NULL is a constant */
}

/* A walk over a stretch. */
struct expansion {
    const struct gather *gather;
    int64_t *row;
    float *value;
    int32_t dim;
    enum dtype type;
};

ALWAYS_INLINE void expand_as(const enum dtype type, const struct summand *from, int32_t dim,
                             float *to) {
    const struct run only = {.row = one_row, .ctx = from, .type = type, .n = 1};
    sum_run(&only, dim, to);
}

ALWAYS_INLINE void expand_lookup(void *ctx, struct lookup l) {
    struct expansion *e = ctx;
    const struct summand x = gather_whole(e->gather, l.feature, l.q, l.i);
    *e->row++ = l.row;
    switch (e->type) {
    case FP16: expand_as(FP16, &x, e->dim, e->value); break;
    case BF16: expand_as(BF16, &x, e->dim, e->value); break;
    default: expand_as(FP32, &x, e->dim, e->value);
    }
    e->value += e->dim;
}

/* The same for a lookup with a mask. */
ALWAYS_INLINE void expand_masked(void *ctx, struct lookup l) {
    struct expansion *e = ctx;
    const struct summand x = gather_at(e->gather, l.feature, l.q, l.i);
    *e->row++ = l.row;
    memset(e->value, 0, (size_t)e->dim * sizeof *e->value);
    row_add_masked(e->type, e->value, x, e->dim);
    e->value += e->dim;
}

/* Counts the entries of this thread's lookups by table. */
static void count(const struct batch *in, int64_t lo, int64_t hi, uint32_t *mine) {
    memset(mine, 0, (size_t)in->num_tables * sizeof *mine);
    for (STRETCHES(s, in, lo, hi)) {
        uint32_t lookups = (uint32_t)(s.end - s.i);
        if (in->features[s.feature].padding_id >= 0) {
            lookups = 0;
            walk_stretch(in, s, count_lookup, &lookups);
        }
        mine[s.table] += lookups;
    }
}

static void expand(const struct layout *p, const struct batch *in, int64_t lo, int64_t hi,
                   uint32_t *mine) {
    for (STRETCHES(s, in, lo, hi)) {
        const struct sparse_gradient *to = &p->to[s.table];
        const int64_t at = mine[s.table] - p->first[s.table];
        const int32_t dim = in->tables[s.table].dim;
        struct expansion e = {&p->gather, to->rows + at, to->values + at * dim, dim, in->grad_type};
        if (in->features[s.feature].pooling == POOL_MAX)
            walk_stretch(in, s, expand_masked, &e);
        else
            walk_stretch(in, s, expand_lookup, &e);
        mine[s.table] += (uint32_t)(e.row - (to->rows + at));
    }
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct layout layout;
    (void)steps, (void)io;
    lay_out(&layout, in, how->threads, how->scratch);
    gradient_lay_out(in, false, how->output, layout.to);
    gather_prepare(&layout.gather);
#pragma omp parallel num_threads(how->threads)
    {
        const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        const int64_t lo = part_begin(in->lookups, thread, threads);
        const int64_t hi = part_begin(in->lookups, thread + 1, threads);
        uint32_t *mine = layout.next + (int64_t)thread * in->num_tables;
        gather_fill(&layout.gather, thread, threads);
        count(in, lo, hi, mine);
        team_cursors(layout.next, in->num_tables, layout.first, threads);
#pragma omp master
        stage_done(how, STAGE_INDEX);
        expand(&layout, in, lo, hi, mine);
    }
    for (int32_t t = 0; t < in->num_tables; t++)
        *layout.to[t].count = layout.first[t + 1] - layout.first[t];
    stage_done(how, STAGE_REDUCE);
    return 0;
}

DEFINE_KERNEL(cpu_unmerged) = {
    .name = "cpu_unmerged",
    .label = "unmerged gradient",
    .idea = "Write the row and the gradient of every lookup, in their order.",
    .operation = OP_GRADIENT,
    .place = ON_HOST,
    .traits = DETERMINISTIC | OWN_LOOKUPS,
    .accepts = accepts_32bit_rows_and_positions,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
