/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "harness/memory.h"
#include "extras/tiers/resident.h"

enum { ALIGN = 4096 };

struct fast_host {
    struct fast fast;
    struct table_set tables; /* of slots */
};

static struct fast_host *host_of(const struct resident *r) {
    return (struct fast_host *)r->fast;
}

static int32_t *ids_of(const struct resident *r, int batch) {
    return (int32_t *)r->batches[batch].ids;
}

static int look(struct resident *r, int32_t t, int batch, struct cache_found *found,
                struct error *err) {
    const struct batch *in = &r->setup.batches[batch];
    (void)err;
    found->num_here = found->num_missing = found->missing_lookups = 0;
    for (int32_t f = 0; f < in->num_features; f++) {
        if (in->features[f].table != t) continue;
        cache_look(r->slots[t].cache, in, in->offsets[f * in->bags],
                   in->offsets[(f + 1) * in->bags], in->features[f].padding_id, r->slots[t].count,
                   ids_of(r, batch), found);
    }
    return 0;
}

static int settle(struct resident *r, int32_t t, int batch, const struct cache_move *moves,
                  int64_t count, struct error *err) {
    const struct batch *in = &r->setup.batches[batch];
    const struct cache *cache = r->slots[t].cache;
    int32_t *slot = ids_of(r, batch);
    (void)moves, (void)err;
    for (int32_t f = 0; count && f < in->num_features; f++) {
        if (in->features[f].table != t) continue;
        for (int64_t i = in->offsets[f * in->bags]; i < in->offsets[(f + 1) * in->bags]; i++)
            if (slot[i] < 0) slot[i] = cache_slot(cache, batch_id(in, i));
    }
    return 0;
}

static int take(struct resident *r, int32_t t, const int32_t *slot, int64_t count,
                struct error *err) {
    const struct record *layout = &r->slots[t].layout;
    (void)err;
    for (int64_t i = 0; i < count; i++)
        record_pack(layout, r->fast->leaving + i * layout->bytes, &host_of(r)->tables.tables[t],
                    slot[i]);
    return 0;
}

static int give(struct resident *r, int32_t t, const int32_t *slot, int64_t count,
                struct error *err) {
    const struct record *layout = &r->slots[t].layout;
    (void)err;
    for (int64_t i = 0; i < count; i++)
        record_unpack(layout, r->fast->coming + i * layout->bytes, &host_of(r)->tables.tables[t],
                      slot[i]);
    return 0;
}

static int intact(struct resident *r, const struct place_scratch *s, struct error *err) {
    if (!buffer_intact(&s->host)) return fail(err, "wrote outside of its scratch"), 1;
    if (!tables_intact(&host_of(r)->tables)) return fail(err, "wrote outside of the tables"), 1;
    return 0;
}

static struct place *open_place(struct resident *r, const struct place_setup *inner,
                                struct error *err) {
    struct place_setup own = *inner;
    own.tables = &host_of(r)->tables;
    return place_host_open(&own, err);
}

static void close_host(struct fast *f) {
    tables_free(&((struct fast_host *)f)->tables);
    free(f->leaving);
    free(f->coming);
    free(f);
}

struct fast *fast_host_open(struct resident *r, int64_t staging, struct error *err) {
    static const struct fast_ops ops = {.close = close_host,
                                        .open_place = open_place,
                                        .look = look,
                                        .take = take,
                                        .give = give,
                                        .settle = settle,
                                        .intact = intact};
    const size_t bytes = (size_t)((staging + ALIGN - 1) / ALIGN * ALIGN);
    struct fast_host *h = must_have(calloc(1, sizeof *h));
    h->fast.ops = &ops;
    h->fast.has_probe = true;
    h->fast.leaving = must_have(aligned_alloc(ALIGN, bytes));
    h->fast.coming = must_have(aligned_alloc(ALIGN, bytes));
    if (tables_create(&h->tables, r->shapes, r->setup.num_tables, 0, err) == 0) {
        h->fast.bytes = h->tables.bytes;
        return &h->fast;
    }
    close_host(&h->fast);
    return NULL;
}
