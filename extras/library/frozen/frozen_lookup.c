/* SPDX-License-Identifier: MIT
 *
 * The lookup in a mapped table. Tables of fp32, fp16, bf16 and fp8 use the code and the prefetch of the forward
 * kernels. This file sums only rows of int8.
 */
#include "kernels/host/lookup.h"
#include "extras/library/frozen/row.h"

enum { AHEAD = 16 }; /* as cpu_lookup_ahead */

/* Sums this thread's part of the bags, as lookup_bags() in kernels/host/lookup.c does for other types. */
static void int8_bags(const struct lookup_feature *f) {
    const struct batch *in = f->in;
    const bool each = f->feature->pooling == POOL_NONE;
    const int64_t *offsets = in->offsets + f->feature->first_bag,
                  first_lookup = f->feature->first_lookup, end = first_lookup + f->feature->lookups;
    const int32_t dim = f->table->dim;
    const enum dtype type = in->grad_type;
    float narrow[type == FP32 ? 1 : dim];
    struct looked_up from = {.in = in,
                             .weight = &f->weight,
                             .padding = each ? -1 : f->feature->padding_id,
                             .weighted = in->lookup_weights};
    const int64_t last = lookup_part(f, f->thread + 1);
    for (int64_t u = lookup_part(f, f->thread); u < last; u++) {
        from.first = each ? first_lookup + u : offsets[u];
        const int64_t n = each ? 1 : offsets[u + 1] - offsets[u];
        char *to = (char *)f->output + forward_row(f->feature, u) * dtype_bytes(type);
        float *sum = type == FP32 ? (float *)to : narrow;
        for (int32_t d = 0; d < dim; d++) sum[d] = 0;
        for (int64_t k = 0; k < n; k++) {
            if (from.first + k + AHEAD < end)
                prefetch(array_row(&f->weight, batch_id(in, from.first + k + AHEAD)),
                         f->weight.stride, INTO_L1);
            const struct summand x = looked_up_row(&from, k);
            if (x.row) int8_row_add(sum, x.row, x.coefficient, dim);
        }
        if (f->feature->pooling == POOL_MEAN) {
            const float count = (float)counted(&from, n);
            for (int32_t d = 0; d < dim; d++) sum[d] /= count;
        }
        if (type != FP32) row_narrow(&(struct row_format){type, ROUND_NEAREST, 0}, sum, dim, to);
    }
}

/* Does one thread's part. Nothing reads shape.weight_type of an int8 table. */
NOINLINE void lookup_as(const struct frozen *t, const struct batch *in, void *output, int thread,
                        int threads) {
    const struct table_shape shape = {
        .rows = t->rows, .dim = t->dim, .weight_type = (enum dtype)(t->type % DTYPE_COUNT)};
    struct lookup_feature mine = {.in = in,
                                  .feature = in->features,
                                  .table = &shape,
                                  .weight = {(void *)(uintptr_t)t->data, t->row_bytes},
                                  .distance = AHEAD,
                                  .output = output,
                                  .thread = thread,
                                  .threads = threads};
    if (t->type == FROZEN_INT8)
        int8_bags(&mine);
    else
        lookup_part_of(&mine);
}

void frozen_lookup(const struct frozen *t, const struct batch *in, void *output, int threads) {
    if (threads == 1) { /* no team is started, so a small request does not wait for one */
        lookup_as(t, in, output, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    lookup_as(t, in, output, omp_get_thread_num(), omp_get_num_threads());
}
