/* SPDX-License-Identifier: MIT */
#include "extras/tiers/study/stream.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness/memory.h"
#include "extras/tiers/resident.h"

struct hits {
    int64_t rows, row_misses, lookups, lookup_misses, lacks;
};

/* The rows of a table in all batches. */
struct touched {
    int64_t *first, *rows, *lookups;
};

static struct touched touched_by(const struct stream *s, int32_t t) {
    struct touched x = {.first = must_have(calloc((size_t)s->batches + 1, sizeof *x.first))};
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = 0;
        for (int b = 0; b < s->batches; b++) {
            const struct row_index *index = &s->index[b];
            const int64_t from = row_index_find(index, t, 0), to = row_index_find(index, t + 1, 0);
            for (int64_t i = from; pass && i < to; i++) {
                x.rows[at + i - from] = index->run[i].row;
                x.lookups[at + i - from] = index->run[i + 1].first - index->run[i].first;
            }
            at += to - from;
            x.first[b + 1] = at;
        }
        if (pass) break;
        x.rows = must_have(calloc((size_t)at + 1, sizeof *x.rows));
        x.lookups = must_have(calloc((size_t)at + 1, sizeof *x.lookups));
    }
    return x;
}

static void touched_free(struct touched *x) {
    free(x->first);
    free(x->rows);
    free(x->lookups);
}

/* Adds the hits of a table. */
static int add_hits(const struct stream *s, int32_t t, const struct touched *x, double budget,
                    enum policy policy, struct hits *h, struct error *err) {
    const int64_t rows = s->workload.tables[t].rows, most = tier_slots(budget, rows);
    const struct cache_setup setup = {.rows = rows,
                                      .slots = most,
                                      .policy = policy,
                                      .first = x->first,
                                      .batch_rows = x->rows,
                                      .num_batches = s->batches};
    struct cache *cache = cache_open(&setup, err);
    if (!cache) return -1;
    int32_t *slot = must_have(calloc((size_t)x->first[s->batches] + 1, sizeof *slot));
    struct cache_move *moves = must_have(calloc((size_t)rows, sizeof *moves));
    const struct batch in = {.id_type = ID_INT64, .ids = x->rows};
    struct cache_found found = {.changes = true,
                                .here = must_have(calloc((size_t)rows + 1, sizeof *found.here)),
                                .missing = must_have(calloc((size_t)rows, sizeof *found.missing))};
    for (int b = 0; b < s->batches; b++) {
        const int64_t first = x->first[b], count = x->first[b + 1] - first;
        int64_t lacks;
        found.num_here = found.num_missing = 0;
        cache_look(cache, &in, first, first + count, -1, -1, slot, &found);
        if (cache_admit(cache, &found, moves, &lacks, err)) {
            h->lacks = lacks > h->lacks ? lacks : h->lacks;
            cache_give_up(cache, &found);
            continue;
        }
        cache_release(cache);
        if (b < s->warm) continue;
        h->rows += count;
        h->row_misses += found.num_missing;
        int64_t at = first;
        for (int64_t i = first; i < first + count; i++) h->lookups += x->lookups[i];
        for (int64_t i = 0; i < found.num_missing; i++) {
            while (x->rows[at] != moves[i].row) at++;
            h->lookup_misses += x->lookups[at];
        }
    }
    free(slot);
    free(moves);
    free(found.here);
    free(found.missing);
    cache_close(cache);
    return 0;
}

int show_hits(const struct stream *s, double budget, struct error *err) {
    struct hits all[POLICIES] = {{0}};
    for (int32_t t = 0; t < s->workload.num_tables; t++) {
        struct touched x = touched_by(s, t);
        int status = 0;
        for (int p = 0; p < POLICIES && status == 0; p++)
            status = add_hits(s, t, &x, budget, (enum policy)p, &all[p], err);
        touched_free(&x);
        if (status) return -1;
    }
    for (int p = 0; p < POLICIES; p++)
        printf("{\"hits\": \"%s\", \"budget\": %g, \"batches\": %d, \"rows\": %lld, "
               "\"row_misses\": %lld, "
               "\"lookups\": %lld, \"lookup_misses\": %lld, \"lacks\": %lld}\n",
               policy_names[p], budget, s->batches - s->warm, (long long)all[p].rows,
               (long long)all[p].row_misses, (long long)all[p].lookups,
               (long long)all[p].lookup_misses, (long long)all[p].lacks);
    fflush(stdout);
    return 0;
}
