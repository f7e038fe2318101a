/* SPDX-License-Identifier: MIT */
#include "harness/workload/winners.h"

#include <stdlib.h>

#include "harness/memory.h"
#include "harness/workload/batch_fill.h"
#include "kernels/forward.h"

/* Lists the numbers of the lookups of flat bag q that count, and returns how many there are. */
static int64_t list_counted(const struct batch *in, int64_t q, int32_t *number) {
    const struct feature *f = feature_at_bag(in, q);
    int64_t counted = 0;
    for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++)
        if (batch_id(in, i) != f->padding_id) number[counted++] = (int32_t)(i - in->offsets[q]);
    return counted;
}

static int64_t longest_bag(const struct batch *in) {
    int64_t longest = 0;
    for (int64_t q = 0; q < in->flat_bags; q++)
        if (in->offsets[q + 1] - in->offsets[q] > longest)
            longest = in->offsets[q + 1] - in->offsets[q];
    return longest;
}

int winners_draw(struct workload *w, int k, struct error *err) {
    struct batch *in = &w->batches[k];
    int32_t *winners = array_alloc(in->grad_elements, sizeof *winners);
    in->winners = winners;
    if (!winners)
        return fail(err, "%s: out of memory for %lld winners", w->name,
                    (long long)in->grad_elements);
    const int64_t longest = longest_bag(in);
#pragma omp parallel if (in->grad_elements >= PARALLEL_FROM)
    {
        int32_t *number = must_have(malloc((size_t)(longest + 1) * sizeof *number));
        for (int32_t f = 0; f < in->num_features; f++) {
            const struct feature *x = &in->features[f];
            const uint64_t key = stream_key(w->seed, STREAM_WINNER, f, k);
#pragma omp for nowait
            for (int64_t b = 0; b < x->bags; b++) {
                const uint64_t counted = (uint64_t)list_counted(in, x->first_bag + b, number);
                const uint32_t bag_key = (uint32_t)rng_u64(key, (uint64_t)b);
                int32_t *to = winners + forward_row(x, b);
                for (int32_t d = 0; d < in->tables[x->table].dim; d++)
                    to[d] =
                        counted ? number[rng_u32(bag_key, (uint32_t)d) * counted >> 32] : NO_WINNER;
            }
        }
        free(number);
    }
    return 0;
}

/* Says what is wrong with a winner of flat bag q, or returns NULL. counts: a lookup of the bag is not padding. */
static const char *wrong_winner(const struct batch *in, int64_t q, int32_t winner, bool counts) {
    const int64_t first = in->offsets[q], length = in->offsets[q + 1] - first;
    if (!counts) return winner == NO_WINNER ? NULL : "no lookup counts, so it must be -1";
    if (winner < 0 || winner >= length) return "it must be the number of a lookup in the bag";
    const bool padding = batch_id(in, first + winner) == feature_at_bag(in, q)->padding_id;
    return padding ? "that lookup is padding" : NULL;
}

static int check_bag(const struct batch *in, int64_t f, int64_t b, struct error *err) {
    const struct feature *x = &in->features[f];
    const int64_t q = x->first_bag + b;
    bool counts = false;
    for (int64_t i = in->offsets[q]; i < in->offsets[q + 1] && !counts; i++)
        counts = batch_id(in, i) != x->padding_id;
    const int32_t *winner = in->winners + forward_row(x, b);
    for (int32_t d = 0; d < in->tables[x->table].dim; d++) {
        const char *why = wrong_winner(in, q, winner[d], counts);
        if (why)
            return fail(err, "feature %lld, bag %lld of %lld lookups, column %d: winner %d, but %s",
                        (long long)f, (long long)b,
                        (long long)(in->offsets[q + 1] - in->offsets[q]), d, winner[d], why);
    }
    return 0;
}

int winners_validate(const struct batch *in, struct error *err) {
    for (int32_t f = 0; f < in->num_features; f++)
        for (int64_t b = 0; in->features[f].pooling == POOL_MAX && b < in->features[f].bags; b++)
            if (check_bag(in, f, b, err)) return -1;
    return 0;
}
