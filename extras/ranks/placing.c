/* SPDX-License-Identifier: MIT */
#include "extras/ranks/placing.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/tables.h"

static int parts_of(const struct placing *x, int kind) {
    return kind == SHARD_TABLE ? 1 : kind == SHARD_TABLE_ROW ? x->on_node : x->ranks;
}

int placing_places(const struct placing *x, int kind) {
    return kind == SHARD_TABLE ? x->ranks : kind == SHARD_TABLE_ROW ? x->nodes : 1;
}

/* --- what tables need, from the batch */

static double row_bytes(const struct table_shape *shape, bool states) {
    double bytes = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (states || a == TABLE_WEIGHT) bytes += (double)table_memory_stride(shape, a);
    return bytes;
}

void placing_part(struct need *n, const struct placing *x, int kind,
                  const struct table_shape *shape, double lookups, double touched, double seen) {
    const double looks = kind == SHARD_DATA ? lookups / x->ranks : lookups;
    const double row = shape->dim * (double)dtype_bytes(shape->weight_type);
    n->tables = (double)tables_bytes(shape, 1);
    n->lookups = lookups;
    n->looked = seen * row;
    n->gathered = looks * row;
    /* An output row for each gradient row that comes back. */
    n->copied = kind == SHARD_DATA ? n->flow.gradient : 0;
    n->updated = touched * row_bytes(shape, true);
    n->added = lookups * shape->dim * (double)dtype_bytes(x->in->grad_type);
}

/* Rows that a batch touches in each part of each table, and those of them that one lookup touches: with a copy of the
 * table on all ranks, those in the bags of a rank, and every lookup of a row is equally likely in any of these. Both: [tables][parts], zeroed. */
static void count_rows(const struct placing *x, int kind, const struct sharding *s,
                       const struct row_index *index, double *touched, double *seen) {
    const int parts = parts_of(x, kind);
    const bool by_rows = sharding_by_rows((enum sharding_kind)kind);
    for (int64_t u = 0; u < index->rows; u++) {
        const struct row_run *run = &index->run[u];
        const double lookups = (double)(run[1].first - run->first),
                     own = kind == SHARD_DATA ? formulas_touch(1.0 / x->ranks, lookups) : 1;
        const int owner = by_rows ? sharding_owner(s, run->table, run->row) : 0;
        for (int d = owner; d < (by_rows ? owner + 1 : parts); d++) {
            touched[run->table * parts + d]++;
            seen[run->table * parts + d] += own;
        }
    }
}

/* All tables in one kind of cut, at place 0. */
static int fill_kind(struct placing *x, int kind, const struct row_index *index, bool all_rows,
                     struct error *err) {
    const struct batch *in = x->in;
    const int parts = parts_of(x, kind);
    struct sharding s;
    int32_t *zero = must_have(calloc((size_t)x->tables, sizeof *zero));
    const int status = sharding_make(&s, sharding_names[kind], zero, in->tables, x->tables,
                                     x->ranks, x->nodes, err);
    free(zero);
    if (status) return -1;
    struct travel *to = must_have(calloc((size_t)x->ranks, sizeof *to));
    double *touched = must_have(calloc((size_t)x->tables * (size_t)parts, sizeof *touched));
    double *seen = must_have(calloc((size_t)x->tables * (size_t)parts, sizeof *seen));
    double *lookups = must_have(calloc((size_t)x->tables * (size_t)parts, sizeof *lookups));
    count_rows(x, kind, &s, index, touched, seen);
    for (int32_t t = 0; t < x->tables; t++) {
        x->needs[t].why_not[kind] =
            kind == SHARD_DATA_DENSE ? "its sums have another order than those of one process"
                                     : sharding_refuses((enum sharding_kind)kind, &in->tables[t]);
        if (!x->needs[t].why_not[kind])
            x->needs[t].parts[kind] = must_have(calloc((size_t)parts, sizeof(struct need)));
    }
    for (int32_t f = 0; f < in->num_features; f++) {
        const int32_t t = in->features[f].table;
        if (!x->needs[t].parts[kind]) continue;
        formulas_travel(&s, in, f, 0, in->bags, false, to);
        for (int d = 0; d < parts; d++) {
            const int32_t part = s.part[(int64_t)t * x->ranks + d];
            if (part < 0) continue;
            lookups[t * parts + d] += to[d].lookups;
            flow_add(&x->needs[t].parts[kind][d].flow,
                     flow_of((enum sharding_kind)kind, in, &in->features[f], s.shards[part].columns,
                             all_rows, to[d]),
                     1.0 / x->ranks);
        }
    }
    for (int32_t t = 0; t < x->tables; t++)
        for (int d = 0; x->needs[t].parts[kind] && d < parts; d++) {
            const int32_t part = s.part[(int64_t)t * x->ranks + d];
            if (part < 0) continue;
            const struct table_shape shape = sharding_shape(&s, &s.shards[part], in->tables);
            placing_part(&x->needs[t].parts[kind][d], x, kind, &shape, lookups[t * parts + d],
                         touched[t * parts + d], seen[t * parts + d]);
        }
    for (int32_t t = 0; kind == SHARD_TABLE && t < x->tables; t++)
        x->needs[t].lookups = lookups[t], x->needs[t].unique = touched[t];
    free(to);
    free(touched);
    free(seen);
    free(lookups);
    sharding_free(&s);
    return 0;
}

/* --- loads of a plan */

static void add_local(struct load *l, const struct need *n, int kind, double sign) {
    l->looked += sign * n->looked;
    l->gathered += sign * n->gathered;
    l->copied += sign * n->copied;
    l->updated += sign * n->updated;
    l->added += sign * n->added;
    l->lookups += sign * n->lookups;
    l->tables += sign * n->tables;
    l->shards += sign > 0 ? 1 : -1;
    if (kind != SHARD_DATA) l->with_output += sign > 0 ? 1 : -1;
}

/* Bytes between a rank and others over a link: those from its bags to shards, and to its shards from
 * bags. Outputs travel the other way. */
static void add_flows(struct load *l, int link, struct flow bags, struct flow shards, double sign) {
    l->bytes[COST_LENGTHS][link].sent += sign * bags.lengths;
    l->bytes[COST_LENGTHS][link].received += sign * shards.lengths;
    l->bytes[COST_IDS][link].sent += sign * bags.ids;
    l->bytes[COST_IDS][link].received += sign * shards.ids;
    l->bytes[COST_GRADIENT][link].sent += sign * bags.gradient;
    l->bytes[COST_GRADIENT][link].received += sign * shards.gradient;
    l->bytes[COST_OUTPUT][link].sent += sign * shards.output;
    l->bytes[COST_OUTPUT][link].received += sign * bags.output;
}

void placing_apply(struct placing *x, int32_t t, int kind, int32_t place, double sign) {
    const struct need *parts = x->needs[t].parts[kind];
    const int count = parts_of(x, kind), first = place * count % x->ranks;
    const struct flow none = {0};
    struct flow *node = must_have(calloc((size_t)x->nodes, sizeof *node)), all = {0};
    for (int p = 0; p < count; p++) {
        flow_add(&node[(first + p) / x->on_node], parts[p].flow, 1);
        flow_add(&all, parts[p].flow, 1);
    }
    for (int r = 0; r < x->ranks; r++) {
        struct load *l = &x->loads[r];
        const bool owns = r >= first && r < first + count && parts[r - first].tables > 0;
        const struct flow own = owns ? parts[r - first].flow : none;
        struct flow near = node[r / x->on_node], far = all, to_near = {0}, to_far = {0};
        flow_add(&far, near, -1);
        flow_add(&near, own, -1);
        flow_add(&to_near, own, x->on_node - 1);
        flow_add(&to_far, own, x->ranks - x->on_node);
        add_flows(l, LINK_NODE, near, to_near, sign);
        add_flows(l, LINK_NETWORK, far, to_far, sign);
        l->kept[COST_LENGTHS] += sign * own.lengths;
        l->kept[COST_IDS] += sign * own.ids;
        l->kept[COST_GRADIENT] += sign * own.gradient;
        l->kept[COST_OUTPUT] += sign * own.output;
        if (owns) add_local(l, &parts[r - first], kind, sign);
    }
    free(node);
}

void placing_put(struct placing *x, int32_t t, int kind, int32_t place) {
    placing_apply(x, t, kind, place, 1);
    x->kind[t] = kind;
    x->place[t] = place;
}

void placing_take_out(struct placing *x, int32_t t) {
    if (x->kind[t] == NOWHERE) return;
    placing_apply(x, t, x->kind[t], x->place[t], -1);
    x->kind[t] = NOWHERE;
}

struct cost placing_cost(const struct placing *x) {
    return cost_of(x->machine, x->loads, x->ring);
}

void placing_clear(struct placing *x) {
    memset(x->loads, 0, (size_t)x->ranks * sizeof *x->loads);
    for (int32_t t = 0; t < x->tables; t++) x->kind[t] = NOWHERE;
}

void placing_close(struct placing *x) {
    for (int32_t t = 0; x->needs && t < x->tables; t++)
        for (int k = 0; k < SHARDINGS; k++) free(x->needs[t].parts[k]);
    free(x->needs);
    free(x->order);
    free(x->kind);
    free(x->place);
    free(x->loads);
}

int placing_open(struct placing *x, const struct machine *m, const struct batch *whole,
                 const struct row_index *index, const struct planner_options *o,
                 struct error *err) {
    const size_t tables = (size_t)whole->num_tables;
    *x = (struct placing){.machine = m,
                          .in = whole,
                          .ring = o->ring < 1 ? 1 : o->ring,
                          .ranks = m->ranks,
                          .nodes = m->nodes,
                          .on_node = m->ranks / m->nodes,
                          .tables = whole->num_tables};
    x->needs = must_have(calloc(tables, sizeof *x->needs));
    x->order = must_have(calloc(tables, sizeof *x->order));
    x->kind = must_have(calloc(tables, sizeof *x->kind));
    x->place = must_have(calloc(tables, sizeof *x->place));
    x->loads = must_have(calloc((size_t)m->ranks, sizeof *x->loads));
    for (int k = 0; k < SHARDINGS; k++)
        if (fill_kind(x, k, index, o->all_rows, err)) return placing_close(x), -1;
    return 0;
}
