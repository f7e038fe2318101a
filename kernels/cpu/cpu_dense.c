/* SPDX-License-Identifier: MIT
 *
 * Dense baseline: a gradient as large as the tables, and an optimizer that sweeps all rows. A
 * framework does this if the user does not ask for a sparse gradient. For rules where a zero
 * gradient changes nothing, the sweep skips rows with a zero gradient, so these keep their bits.
 *
 * Who owns what: a hash assigns blocks of 512 rows to threads. Every thread walks all lookups and
 * adds those of its rows, so there are no races and no atomics (PyTorch's CPU nn.Embedding backward
 * assigns ranges of rows in the same way). Zero and sweep are split evenly.
 * Scratch and traffic: [rows][dim] floats per table, all written and read in every step.
 * Deterministic: a row is summed in the order of its lookups.
 * Wins on tables of a few rows; loses in proportion to rows / touched rows.
 */
#include <omp.h>
#include <string.h>

#include "kernels/host/owner.h"
#include "kernels/host/scatter.h"
#include "kernels/host/update.h"

struct layout {
    struct gather gather;
    float **grad; /* [num_tables] -> [rows][dim] */
};

static size_t lay_out(struct layout *p, const struct batch *in, void *base) {
    struct scratch s = {base, 0};
    gather_lay_out(&p->gather, &s, in, false);
    p->grad = scratch_take(&s, in->num_tables, sizeof *p->grad);
    for (int32_t t = 0; t < in->num_tables; t++) {
        float *g = scratch_take(&s, in->tables[t].rows * in->tables[t].dim, sizeof *g);
        if (base) p->grad[t] = g;
    }
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int threads) {
    (void)threads;
    return lay_out(&(struct layout){0}, shape, NULL);
}

struct dense_walk {
    const struct layout *layout;
    const struct batch *in;
    int thread, threads;
    struct scatter scatter;
};

ALWAYS_INLINE void add(void *ctx, struct lookup l) {
    struct dense_walk *w = ctx;
    int32_t t = w->in->features[l.feature].table, dim = w->in->tables[t].dim;
    if (owner_of(t, l.row, w->threads) != w->thread) return;
    scatter_push(&w->scatter, w->layout->grad[t] + l.row * dim, w->in->grad_type,
                 gather_at(&w->layout->gather, l.feature, l.q, l.i), dim);
}

static bool is_zero(const float *row, int32_t dim) {
    int other = 0;
#pragma omp simd reduction(| : other)
    for (int32_t d = 0; d < dim; d++) other |= row[d] != 0;
    return !other;
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct layout layout;
    lay_out(&layout, in, how->scratch);
    gather_prepare(&layout.gather);
#pragma omp parallel num_threads(how->threads)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        gather_fill(&layout.gather, thread, threads);
#pragma omp barrier
#pragma omp master
        stage_done(how, STAGE_INDEX);

        for (int32_t t = 0; t < in->num_tables; t++) {
            int64_t floats = in->tables[t].rows * in->tables[t].dim;
            int64_t lo = part_begin(floats, thread, threads);
            int64_t hi = part_begin(floats, thread + 1, threads);
            memset(layout.grad[t] + lo, 0, (size_t)(hi - lo) * sizeof(float));
        }
#pragma omp barrier
#pragma omp master
        stage_done(how, STAGE_ZERO);

        struct dense_walk w = {.layout = &layout, .in = in, .thread = thread, .threads = threads};
        walk(in, 0, in->lookups, add, &w);
        scatter_drain(&w.scatter);
#pragma omp barrier
#pragma omp master
        stage_done(how, STAGE_REDUCE);

        for (int32_t t = 0; t < in->num_tables; t++) {
            const struct updater u = updater_of(in, t, steps, io);
            bool idle = rule_keeps_idle(&steps[t].rule);
#pragma omp for schedule(static) nowait
            for (int64_t row = 0; row < in->tables[t].rows; row++) {
                float *grad = layout.grad[t] + row * u.dim;
                if (!(idle && is_zero(grad, u.dim))) updater_row(&u, row, grad);
            }
        }
    }
    stage_done(how, STAGE_UPDATE);
    return 0;
}

DEFINE_KERNEL(cpu_dense) = {
    .name = "cpu_dense",
    .label = "dense baseline",
    .idea = "Zero a gradient of all rows, scatter-add by row owner, sweep the optimizer over the "
            "table.",
    .place = ON_HOST,
    .traits = DETERMINISTIC | DENSE_GRAD | DENSE_STEP | OWN_LOOKUPS,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
