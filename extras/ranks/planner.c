/* SPDX-License-Identifier: MIT */
#include "extras/ranks/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "extras/ranks/placing.h"

enum { ROUNDS = 20, WHY_MAX = 600 };

/* --- the search */

/* What fits is better, then what takes less time, then what leaves more idle. Sums of floats in another
 * order are no difference. */
static bool better(struct cost a, struct cost b) {
    const double same = 1e-9;
    if (a.lacks != b.lacks && fmin(a.lacks, b.lacks) <= (1 - same) * fmax(a.lacks, b.lacks))
        return a.lacks < b.lacks;
    if (fabs(a.seconds - b.seconds) > same * b.seconds) return a.seconds < b.seconds;
    return a.mean < (1 - same) * b.mean;
}

/* The best place of a table that is out, in this kind of cut; false: not possible. */
static bool best_place(struct placing *x, int32_t t, int kind, int32_t *place, struct cost *cost) {
    if (!x->needs[t].parts[kind]) return false;
    for (int32_t p = 0; p < placing_places(x, kind); p++) {
        placing_apply(x, t, kind, p, 1);
        const struct cost c = placing_cost(x);
        placing_apply(x, t, kind, p, -1);
        if (p == 0 || better(c, *cost)) *cost = c, *place = p;
    }
    return true;
}

/* Takes a table out, and puts it where it is best; false: it was there. */
static bool improve(struct placing *x, int32_t t) {
    const int kind_before = x->kind[t];
    const int32_t place_before = x->place[t];
    int kind = kind_before;
    int32_t place = place_before;
    struct cost best = x->cost;
    placing_take_out(x, t);
    for (int k = 0; k < SHARDINGS; k++) {
        int32_t p = 0;
        struct cost c = {0};
        if (best_place(x, t, k, &p, &c) && (kind == NOWHERE || better(c, best)))
            kind = k, place = p, best = c;
    }
    placing_put(x, t, kind, place);
    x->cost = best;
    return kind != kind_before || place != place_before;
}

static void descend(struct placing *x) {
    bool gains = true;
    x->cost = placing_cost(x);
    for (int round = 0; gains && round < ROUNDS; round++) {
        gains = false;
        for (int32_t i = 0; i < x->tables; i++) gains |= improve(x, x->order[i]);
    }
    x->cost = placing_cost(x);
}

struct kept {
    int *kind;
    int32_t *place;
    struct cost cost;
    bool any;
};

static void keep_better(const struct placing *x, struct kept *best) {
    if (best->any && !better(x->cost, best->cost)) return;
    memcpy(best->kind, x->kind, (size_t)x->tables * sizeof *x->kind);
    memcpy(best->place, x->place, (size_t)x->tables * sizeof *x->place);
    best->cost = x->cost;
    best->any = true;
}

/* Every table in this kind of cut, where it can be; places in turn. */
static void uniform(struct placing *x, int kind) {
    placing_clear(x);
    for (int32_t t = 0; t < x->tables; t++)
        if (x->needs[t].parts[kind]) placing_put(x, t, kind, t % placing_places(x, kind));
}

struct ranked {
    double seconds;
    int32_t table;
};

static int slower_first(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    return x->seconds != y->seconds ? (x->seconds < y->seconds ? 1 : -1) : x->table - y->table;
}

static void order_tables(struct placing *x) {
    struct ranked *all = must_have(calloc((size_t)x->tables, sizeof *all));
    for (int32_t t = 0; t < x->tables; t++) {
        placing_clear(x);
        placing_put(x, t, SHARD_TABLE, 0);
        all[t] = (struct ranked){placing_cost(x).seconds, t};
    }
    qsort(all, (size_t)x->tables, sizeof *all, slower_first);
    for (int32_t t = 0; t < x->tables; t++) x->order[t] = all[t].table;
    free(all);
}

/* Kinds that are not wanted, or the same as another one here. Fails if a table has no kind left. */
static int leave_out(struct placing *x, const struct planner_options *o, struct error *err) {
    for (int32_t t = 0; t < x->tables; t++) {
        int left = 0;
        for (int k = 0; k < SHARDINGS; k++) {
            const bool unwanted = o->leave >> k & 1,
                       doubled = (k == SHARD_TABLE_ROW && x->nodes == 1) ||
                                 (k != SHARD_TABLE && x->ranks == 1);
            if (unwanted || doubled) {
                free(x->needs[t].parts[k]);
                x->needs[t].parts[k] = NULL;
                x->needs[t].why_not[k] = unwanted ? "left out" : NULL;
            }
            left += x->needs[t].parts[k] != NULL;
        }
        if (left == 0) return fail(err, "table %d: every kind of sharding is left out", t);
    }
    return 0;
}

int planner_cost(const char *sharding, const struct machine *m, const struct batch *whole,
                 const struct row_index *index, const struct planner_options *o, struct cost *out,
                 struct error *err) {
    struct placing x;
    struct sharding s;
    if (placing_open(&x, m, whole, index, o, err)) return -1;
    int status = 0;
    if (!sharding)
        uniform(&x, SHARD_TABLE);
    else if ((status = sharding_make(&s, sharding, NULL, whole->tables, whole->num_tables, m->ranks,
                                     m->nodes, err)) == 0) {
        for (int32_t t = 0; status == 0 && t < x.tables; t++) {
            int32_t part = -1;
            for (int r = 0; part < 0; r++) part = s.part[(int64_t)t * x.ranks + r];
            const int kind = s.kind[t], rank = s.shards[part].rank;
            if (!x.needs[t].parts[kind])
                status = fail(err, "table %d, %s: %s", t, sharding_names[kind],
                              x.needs[t].why_not[kind]);
            else
                placing_put(&x, t, kind,
                            kind == SHARD_TABLE       ? rank
                            : kind == SHARD_TABLE_ROW ? rank / x.on_node
                                                      : 0);
        }
        sharding_free(&s);
    }
    *out = placing_cost(&x);
    placing_close(&x);
    return status;
}

/* --- what comes out */

static void word_of(int kind, int32_t place, char *text, size_t size) {
    if (kind == SHARD_TABLE || kind == SHARD_TABLE_ROW)
        text_add(text, size, "%s@%d", sharding_names[kind], place);
    else
        text_add(text, size, "%s", sharding_names[kind]);
}

/* One line: the table, the choice, and what the best of every other kind would cost. */
static void explain(struct placing *x, int32_t t, char *why) {
    const struct table_shape *shape = &x->in->tables[t];
    const struct table_needs *n = &x->needs[t];
    const int kind = x->kind[t];
    const int32_t place = x->place[t];
    const struct cost cost = x->cost;
    const double bags = (double)(shape->features * x->in->bags);
    text_add(why, WHY_MAX,
             "table %d, %lld rows x %d, %d features, %.1f lookups a bag, %.0f %% of them unique "
             "rows: ",
             t, (long long)shape->rows, shape->dim, shape->features,
             bags > 0 ? n->lookups / bags : 0, n->lookups > 0 ? 100 * n->unique / n->lookups : 0);
    word_of(kind, place, why, WHY_MAX);
    placing_take_out(x, t);
    for (int k = 0, others = 0; k < SHARDINGS; k++) {
        int32_t p = 0;
        struct cost c = {0};
        if (k == kind || (!n->parts[k] && !n->why_not[k])) continue;
        text_add(why, WHY_MAX, "%s%s ", others++ ? ", " : "; instead ", sharding_names[k]);
        if (!best_place(x, t, k, &p, &c))
            text_add(why, WHY_MAX, "is not possible (%s)", n->why_not[k]);
        else if (c.lacks > cost.lacks)
            text_add(why, WHY_MAX, "lacks %.1f MB", c.lacks / 1e6);
        else
            text_add(why, WHY_MAX, "%+.1f %%", 100 * (c.seconds / cost.seconds - 1));
    }
    placing_put(x, t, kind, place);
}

static int refuse(const struct placing *x, struct error *err) {
    int fullest = 0;
    double most = 0;
    for (int r = 0; r < x->ranks; r++) {
        const double lacks = cost_memory(&x->loads[r], x->ring) - (double)x->machine->memory;
        if (lacks > most) most = lacks, fullest = r;
    }
    return fail(
        err,
        "no sharding fits into %lld bytes of each rank: of the best one found %.0f bytes lack on "
        "rank %d, and %.0f on all ranks; take more ranks, or smaller tables",
        (long long)x->machine->memory, most, fullest, x->cost.lacks);
}

static void write_plan(struct placing *x, struct table_plan *out) {
    const size_t tables = (size_t)x->tables, size = tables * 24 + 1;
    out->kind = must_have(calloc(tables, sizeof *out->kind));
    out->place = must_have(calloc(tables, sizeof *out->place));
    out->why = must_have(calloc(tables, sizeof *out->why));
    out->text = must_have(calloc(size, 1));
    out->loads = must_have(calloc((size_t)x->ranks, sizeof *out->loads));
    for (int32_t t = 0; t < x->tables; t++) {
        out->kind[t] = (enum sharding_kind)x->kind[t];
        out->place[t] = x->place[t];
        out->why[t] = must_have(calloc(WHY_MAX, 1));
        if (t) text_add(out->text, size, ",");
        word_of(x->kind[t], x->place[t], out->text, size);
        explain(x, t, out->why[t]);
    }
    memcpy(out->loads, x->loads, (size_t)x->ranks * sizeof *out->loads);
    out->cost = x->cost;
}

int planner_plan(struct table_plan *out, const struct machine *m, const struct batch *whole,
                 const struct row_index *index, const struct planner_options *o,
                 struct error *err) {
    struct placing x;
    *out = (struct table_plan){.num_tables = whole->num_tables, .ranks = m->ranks, .machine = *m};
    if (placing_open(&x, m, whole, index, o, err)) return -1;
    out->ring = x.ring;
    order_tables(&x);
    uniform(&x, SHARD_TABLE);
    out->round_robin = placing_cost(&x);
    if (leave_out(&x, o, err)) return placing_close(&x), -1;
    struct kept best = {must_have(calloc((size_t)x.tables, sizeof *best.kind)),
                        must_have(calloc((size_t)x.tables, sizeof *best.place)),
                        {0},
                        false};
    placing_clear(&x);
    for (int start = 0; start <= SHARDINGS; start++) {
        if (start > 0) uniform(&x, start - 1);
        descend(&x);
        keep_better(&x, &best);
    }
    placing_clear(&x);
    for (int32_t t = 0; t < x.tables; t++) placing_put(&x, t, best.kind[t], best.place[t]);
    x.cost = placing_cost(&x);
    free(best.kind);
    free(best.place);
    const int status = x.cost.lacks > 0 ? refuse(&x, err) : 0;
    if (status == 0) write_plan(&x, out);
    placing_close(&x);
    return status;
}

void planner_free(struct table_plan *p) {
    for (int32_t t = 0; p->why && t < p->num_tables; t++) free(p->why[t]);
    free(p->why);
    free(p->kind);
    free(p->place);
    free(p->loads);
    free(p->text);
    *p = (struct table_plan){0};
}

void planner_print(const struct table_plan *p, FILE *to) {
    double(*seconds)[COST_STAGES] = must_have(calloc((size_t)p->ranks, sizeof *seconds));
    cost_stages(&p->machine, p->loads, seconds);
    for (int32_t t = 0; t < p->num_tables; t++) fprintf(to, "%s\n", p->why[t]);
    fprintf(to, "sharding %s\n", p->text);
    for (int r = 0; r < p->ranks; r++) {
        double own = 0;
        fprintf(to, "rank %d: %.1f MB of tables, %.1f MB in all;", r, p->loads[r].tables / 1e6,
                cost_memory(&p->loads[r], p->ring) / 1e6);
        for (int s = 0; s < COST_STAGES; s++) {
            own += seconds[r][s];
            fprintf(to, " %s %.3g ms,", cost_stage_names[s], 1e3 * seconds[r][s]);
        }
        fprintf(to, " together %.3g ms\n", 1e3 * own);
    }
    fprintf(to,
            "predicted: %.3g ms for an iteration; of a rank's own time the largest / mean = %.2f; "
            "tables dealt round-robin: %.3g ms%s\n",
            1e3 * p->cost.seconds, p->cost.mean > 0 ? p->cost.most / p->cost.mean : 1,
            1e3 * p->round_robin.seconds, p->round_robin.lacks > 0 ? ", but they do not fit" : "");
    free(seconds);
}
