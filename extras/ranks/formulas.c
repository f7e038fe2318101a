/* SPDX-License-Identifier: MIT */
#include "extras/ranks/formulas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"

enum { LENGTH_BYTES = 4 };

struct flow flow_of(enum sharding_kind kind, const struct batch *in, const struct feature *feature,
                    int32_t columns, bool all_rows, struct travel x) {
    const bool by_rows = sharding_by_rows(kind), sequence = feature->pooling == POOL_NONE;
    const bool divisor = by_rows && feature->pooling == POOL_MEAN;
    const double id = (in->id_type == ID_INT32 ? 4 : 8) + (in->lookup_weights ? 4 : 0);
    const double rows = sequence ? x.lookups : by_rows && !all_rows ? x.touching : x.bags;
    const double bytes = rows * columns * dtype_bytes(in->grad_type);
    return (struct flow){.lengths = x.bags * LENGTH_BYTES * (1 + divisor),
                         .ids = x.lookups * id,
                         .output = kind == SHARD_DATA ? 0 : bytes,
                         .gradient = bytes};
}

double formulas_touch(double share, double lookups) {
    return share >= 1 ? (lookups > 0) : -expm1(lookups * log1p(-share));
}

void formulas_travel(const struct sharding *s, const struct batch *in, int32_t f, int64_t begin,
                     int64_t end, bool expected, struct travel *to) {
    const int32_t table = in->features[f].table;
    const int64_t *at = in->offsets + f * in->bags;
    const bool by_rows = sharding_by_rows(s->kind[table]);
    const double all_rows = (double)in->tables[table].rows;
    int64_t *last = must_have(calloc((size_t)s->ranks, sizeof *last)); /* bag + 1 */
    for (int d = 0; d < s->ranks; d++) {
        const int32_t part = s->part[(int64_t)table * s->ranks + d];
        to[d] = (struct travel){.bags = (double)(end - begin)};
        if (part < 0 || (by_rows && !expected)) continue;
        const double share = by_rows ? (double)s->shards[part].rows / all_rows : 1;
        to[d].lookups = share * (double)(at[end] - at[begin]);
        for (int64_t b = begin; by_rows && b < end; b++)
            to[d].touching += formulas_touch(share, (double)(at[b + 1] - at[b]));
    }
    for (int64_t b = begin; by_rows && !expected && b < end; b++)
        for (int64_t i = at[b]; i < at[b + 1]; i++) {
            const int owner = sharding_owner(s, table, batch_id(in, i));
            to[owner].lookups++;
            to[owner].touching += last[owner] != b + 1;
            last[owner] = b + 1;
        }
    free(last);
}

/* Table t of the kind data-dense, from rank r to rank d: its bits; then its part of d's block of rows for the sum,
 * and the sum of its own block, which is in place at its own. */
static struct flow flow_of_dense(const struct sharding *s, const struct table_shape *shape, int r,
                                 int d) {
    const int64_t to = sharding_bag(shape->rows, d + 1, s->ranks) -
                       sharding_bag(shape->rows, d, s->ranks),
                  own = sharding_bag(shape->rows, r + 1, s->ranks) -
                        sharding_bag(shape->rows, r, s->ranks);
    return (struct flow){.ids = (double)((shape->rows + 7) / 8),
                         .gradient = (double)((r == d ? own : to + own) * shape->dim) *
                                     (double)sizeof(float)};
}

static void all_pairs(const struct sharding *s, const struct batch *in, bool all_rows,
                      bool expected, struct flow *pairs) {
    const int ranks = s->ranks;
    memset(pairs, 0, (size_t)ranks * (size_t)ranks * sizeof *pairs);
    struct travel *to = must_have(calloc((size_t)ranks, sizeof *to));
    for (int32_t t = 0; t < in->num_tables; t++)
        for (int i = 0; s->kind[t] == SHARD_DATA_DENSE && i < ranks * ranks; i++)
            flow_add(&pairs[i], flow_of_dense(s, &in->tables[t], i / ranks, i % ranks), 1);
    for (int32_t f = 0; f < in->num_features; f++)
        for (int r = 0; r < ranks; r++) {
            const int32_t table = in->features[f].table;
            if (s->kind[table] == SHARD_DATA_DENSE) continue;
            formulas_travel(s, in, f, sharding_bag(in->bags, r, ranks),
                            sharding_bag(in->bags, r + 1, ranks), expected, to);
            for (int d = 0; d < ranks; d++) {
                const int32_t part = s->part[(int64_t)table * ranks + d];
                if (part >= 0)
                    flow_add(&pairs[r * ranks + d],
                             flow_of(s->kind[table], in, &in->features[f], s->shards[part].columns,
                                     all_rows, to[d]),
                             1);
            }
        }
    free(to);
}

void formulas_count(const struct sharding *s, const struct batch *whole, bool all_rows,
                    struct flow *pairs) {
    all_pairs(s, whole, all_rows, false, pairs);
}

void formulas_expect(const struct sharding *s, const struct batch *whole, bool all_rows,
                     struct flow *pairs) {
    all_pairs(s, whole, all_rows, true, pairs);
}

struct flow formulas_closed(enum sharding_kind kind, bool all_rows, const struct closed *c) {
    const bool by_rows = sharding_by_rows(kind);
    if (kind == SHARD_DATA_DENSE) /* one table for each feature */
        return (struct flow){.ids = (c->ranks - 1) * c->features * ceil(c->rows / 8),
                             .gradient = 2 * (c->ranks - 1.0) / c->ranks * c->features * c->rows *
                                         c->dim * (double)sizeof(float)};
    const double parts = kind == SHARD_TABLE ? 1 : kind == SHARD_TABLE_ROW ? c->on_node : c->ranks;
    /* Every bag meets `parts` ranks, one of which is its own once in `ranks` times. */
    const double away = parts * (c->ranks - 1) / c->ranks * c->features * c->bags;
    const double lookups = by_rows ? c->lookups / parts : c->lookups;
    const double columns = kind == SHARD_COLUMN ? c->dim / parts : c->dim;
    const double rows = by_rows && !all_rows ? formulas_touch(1 / parts, c->lookups) : 1;
    const double bytes = away * columns * rows * c->element;
    return (struct flow){.lengths = away * LENGTH_BYTES,
                         .ids = away * lookups * c->id_bytes,
                         .output = kind == SHARD_DATA ? 0 : bytes,
                         .gradient = bytes};
}
