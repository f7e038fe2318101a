/* SPDX-License-Identifier: MIT */
#include "harness/workload/id_stats.h"

#include <stdlib.h>
#include <xxhash.h>

/* 1 -> 0, 2 -> 1, 3..4 -> 2, ..., all above 2^(RUN_BINS-2) -> the last. */
static int run_bin(int64_t count) {
    int bin = count <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)count - 1);
    return bin < RUN_BINS ? bin : RUN_BINS - 1;
}

static void add_runs(struct id_stats *s, const struct row_index *x) {
    for (int64_t r = 0; r < x->rows; r++) {
        int64_t from = x->run[r].first, to = x->run[r + 1].first;
        if (to - from > s->hottest) s->hottest = to - from;
        s->run_lookups[run_bin(to - from)] += to - from;
        s->run_rows[run_bin(to - from)]++;
        /* ordered by position, so the lookups of one bag are adjacent */
        for (int64_t i = from + 1; i < to; i++)
            s->in_bag_duplicates += x->lookup[i].bag == x->lookup[i - 1].bag;
    }
}

static void add_bags(struct id_stats *s, const struct batch *in) {
    s->bags = in->flat_bags;
    for (int64_t q = 0; q < s->bags; q++) {
        int64_t length = in->offsets[q + 1] - in->offsets[q];
        s->empty_bags += length == 0;
        if (length > s->longest_bag) s->longest_bag = length;
    }
}

static void hash_ids(XXH3_state_t *state, const struct batch *in) {
    enum { CHUNK = 512 };
    int64_t wide[CHUNK];
    if (in->id_type == ID_INT64) {
        XXH3_64bits_update(state, in->ids, (size_t)in->lookups * sizeof *wide);
        return;
    }
    for (int64_t i = 0; i < in->lookups; i += CHUNK) {
        int64_t n = in->lookups - i < CHUNK ? in->lookups - i : CHUNK;
        for (int64_t j = 0; j < n; j++) wide[j] = batch_id(in, i + j);
        XXH3_64bits_update(state, wide, (size_t)n * sizeof *wide);
    }
}

static void hash_numbers(XXH3_state_t *state, int64_t a, int64_t b) {
    int64_t numbers[2] = {a, b};
    XXH3_64bits_update(state, numbers, sizeof numbers);
}

uint64_t batch_fingerprint(const struct batch *in) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) abort();
    XXH3_64bits_reset(state);
    hash_numbers(state, in->num_tables, in->num_features);
    hash_numbers(state, in->features[0].bags, in->lookups);
    for (int t = 0; t < in->num_tables; t++)
        hash_numbers(state, in->tables[t].rows, in->tables[t].dim);
    for (int f = 0; f < in->num_features; f++)
        hash_numbers(state, in->features[f].table, in->features[f].padding_id);
    for (int f = 1; f < in->num_features; f++)
        if (in->features[f].bags != in->features[0].bags)
            hash_numbers(state, f, in->features[f].bags);
    hash_ids(state, in);
    int64_t offsets = in->flat_bags + 1;
    XXH3_64bits_update(state, in->offsets, (size_t)offsets * sizeof *in->offsets);
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

struct id_stats id_stats(const struct batch *in, const struct row_index *index) {
    struct id_stats s = {.lookups = index->lookups,
                         .padding = in->lookups - index->lookups,
                         .distinct = index->rows};
    add_runs(&s, index);
    add_bags(&s, in);
    s.fingerprint = batch_fingerprint(in);
    return s;
}
