/* SPDX-License-Identifier: MIT */
#include "extras/ranks/sharding.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/tables.h"
#include "kernels/shape.h"

const char *const sharding_names[SHARDINGS] = {"table",     "row",  "row-modulo", "column",
                                               "table-row", "data", "data-dense"};

/* --- the words */

static int kind_of(const char *word, size_t length) {
    for (int k = 0; k < SHARDINGS; k++)
        if (strlen(sharding_names[k]) == length && memcmp(sharding_names[k], word, length) == 0)
            return k;
    return -1;
}

/* place[t]: what stands behind an @, or -1. */
static int read_kinds(struct sharding *s, const char *text, int32_t *place, struct error *err) {
    const char *at = text;
    int32_t words = 0;
    for (;; at++, words++) {
        const size_t length = strcspn(at, "@,");
        const int kind = kind_of(at, length);
        long number = -1;
        if (kind < 0 && strcmp(text, "auto") == 0)
            return fail(err,
                        "sharding 'auto': extras/ranks/plan.py chooses the words; give what it "
                        "prints");
        if (kind < 0)
            return fail(err,
                        "sharding '%.60s': there are table, row, row-modulo, column, table-row, "
                        "data and data-dense; table@2 is on rank 2, table-row@1 on node 1",
                        text);
        at += length;
        if (*at == '@') {
            char *end;
            number = at[1] >= '0' && at[1] <= '9' ? strtol(at + 1, &end, 10) : -1;
            if (number < 0 || number > INT32_MAX || (*end && *end != ',') ||
                (kind != SHARD_TABLE && kind != SHARD_TABLE_ROW))
                return fail(
                    err,
                    "sharding '%.60s': @ and the number of a rank follow the word table, of "
                    "a node the word table-row",
                    text);
            at = end;
        }
        if (words < s->num_tables)
            s->kind[words] = (enum sharding_kind)kind, place[words] = (int32_t)number;
        if (!*at) break;
    }
    words++;
    if (words == 1)
        for (int32_t t = 1; t < s->num_tables; t++) s->kind[t] = s->kind[0], place[t] = place[0];
    else if (words != s->num_tables)
        return fail(err, "sharding '%.60s' has %d words for %d tables; one word is for all", text,
                    words, s->num_tables);
    return 0;
}

/* --- the cuts */

static void add(struct sharding *s, struct shard part) {
    if (part.rows > 0 && part.columns > 0) s->shards[s->count++] = part;
}

/* Rows in blocks over ranks first .. first+over-1. */
static void cut_rows(struct sharding *s, struct shard whole, int first, int over) {
    const int64_t block = (whole.rows + over - 1) / over, rows = whole.rows;
    s->blocks[whole.table] = (struct row_blocks){block, first};
    for (int r = 0; r < over; r++) {
        whole.rank = first + r;
        whole.row = min64(r * block, rows);
        whole.rows = min64(block, rows - whole.row);
        add(s, whole);
    }
}

static void cut(struct sharding *s, int32_t t, const struct table_shape *shape, int32_t place) {
    const struct shard whole = {
        .table = t, .rank = place, .rows = shape->rows, .columns = shape->dim};
    const int on_node = s->ranks / s->nodes;
    switch (s->kind[t]) {
    case SHARD_TABLE: add(s, whole); break;
    case SHARD_ROW: cut_rows(s, whole, 0, s->ranks); break;
    case SHARD_TABLE_ROW: cut_rows(s, whole, place * on_node, on_node); break;
    case SHARD_ROW_MODULO:
        for (int r = 0; r < s->ranks; r++)
            add(s, (struct shard){.table = t,
                                  .rank = r,
                                  .row = r,
                                  .row_skip = s->ranks - 1,
                                  .rows = (shape->rows - r + s->ranks - 1) / s->ranks,
                                  .columns = shape->dim});
        break;
    case SHARD_COLUMN:
        for (int r = 0; r < s->ranks; r++) {
            const int32_t begin = (int32_t)sharding_bag(shape->dim, r, s->ranks);
            const int32_t end = (int32_t)sharding_bag(shape->dim, r + 1, s->ranks);
            add(s, (struct shard){.table = t,
                                  .rank = r,
                                  .rows = shape->rows,
                                  .column = begin,
                                  .columns = end - begin});
        }
        break;
    default:
        for (int r = 0; r < s->ranks; r++) {
            struct shard copy = whole;
            copy.rank = r;
            add(s, copy);
        }
    }
}

/* --- who gets which table */

struct sized {
    int64_t bytes;
    int32_t table;
};

static int larger_first(const void *a, const void *b) {
    const struct sized *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->table - y->table;
}

static int group_of(const struct sharding *s, int32_t t) {
    return s->kind[t] == SHARD_TABLE       ? 1
           : s->kind[t] == SHARD_TABLE_ROW ? s->ranks / s->nodes
                                           : s->ranks;
}

/* place[t] of every table that lies on one rank or one node and has none yet (-1). */
static void deal(const struct sharding *s, const struct table_shape *shapes, int32_t *place) {
    struct sized *order = must_have(calloc((size_t)s->num_tables, sizeof *order));
    int64_t *load = must_have(calloc((size_t)s->ranks, sizeof *load));
    for (int32_t t = 0; t < s->num_tables; t++)
        order[t] = (struct sized){tables_bytes(&shapes[t], 1), t};
    qsort(order, (size_t)s->num_tables, sizeof *order, larger_first);
    /* Those with a place are there already. */
    for (int free_ones = 0; free_ones < 2; free_ones++)
        for (int32_t i = 0; i < s->num_tables; i++) {
            const int32_t t = order[i].table;
            const int group = group_of(s, t);
            if ((place[t] < 0) != free_ones) continue;
            int least = free_ones || group == s->ranks ? 0 : place[t] * group;
            for (int r = 0; free_ones && r < s->ranks; r += group)
                if (load[r] < load[least]) least = r;
            place[t] = least / group;
            for (int r = least; r < least + group; r++) load[r] += order[i].bytes / group;
        }
    free(order);
    free(load);
}

static int by_rank(const void *a, const void *b) {
    const struct shard *x = a, *y = b;
    return x->rank != y->rank ? x->rank - y->rank : x->table - y->table;
}

static void index_shards(struct sharding *s) {
    qsort(s->shards, (size_t)s->count, sizeof *s->shards, by_rank);
    for (int64_t i = 0; i < (int64_t)s->num_tables * s->ranks; i++) s->part[i] = -1;
    for (int32_t i = 0; i < s->count; i++) {
        s->part[(int64_t)s->shards[i].table * s->ranks + s->shards[i].rank] = i;
        s->first[s->shards[i].rank + 1]++;
    }
    for (int r = 0; r < s->ranks; r++) s->first[r + 1] += s->first[r];
}

int sharding_make(struct sharding *out, const char *text, const struct table_shape *shapes,
                  int32_t num_tables, int ranks, int nodes, struct error *err) {
    const int64_t most = (int64_t)num_tables * ranks;
    *out = (struct sharding){.ranks = ranks, .nodes = nodes, .num_tables = num_tables};
    out->kind = must_have(calloc((size_t)num_tables, sizeof *out->kind));
    out->shards = must_have(calloc((size_t)most, sizeof *out->shards));
    out->first = must_have(calloc((size_t)ranks + 1, sizeof *out->first));
    out->part = must_have(calloc((size_t)most, sizeof *out->part));
    out->blocks = must_have(calloc((size_t)num_tables, sizeof *out->blocks));
    int32_t *place = must_have(calloc((size_t)num_tables, sizeof *place));
    int status = read_kinds(out, text, place, err);
    for (int32_t t = 0; status == 0 && t < num_tables; t++) {
        const int over = out->kind[t] == SHARD_TABLE_ROW ? nodes : ranks;
        if (place[t] >= over)
            status = fail(err, "table %d: its place is %d; there are %d", t, place[t], over);
    }
    if (status == 0) deal(out, shapes, place);
    for (int32_t t = 0; status == 0 && t < num_tables; t++) cut(out, t, &shapes[t], place[t]);
    if (status == 0) index_shards(out);
    free(place);
    if (status) sharding_free(out);
    return status;
}

void sharding_select(const struct sharding *from, const bool *keep, struct sharding *out) {
    const size_t tables = (size_t)from->num_tables, most = tables * (size_t)from->ranks;
    *out = *from;
    out->count = 0;
    out->kind = must_have(calloc(tables, sizeof *out->kind));
    out->shards = must_have(calloc(most, sizeof *out->shards));
    out->first = must_have(calloc((size_t)from->ranks + 1, sizeof *out->first));
    out->part = must_have(calloc(most, sizeof *out->part));
    out->blocks = must_have(calloc(tables, sizeof *out->blocks));
    memcpy(out->kind, from->kind, tables * sizeof *out->kind);
    memcpy(out->blocks, from->blocks, tables * sizeof *out->blocks);
    for (int32_t i = 0; i < from->count; i++)
        if (keep[from->shards[i].table]) add(out, from->shards[i]);
    index_shards(out);
}

void sharding_free(struct sharding *s) {
    free(s->kind);
    free(s->shards);
    free(s->first);
    free(s->part);
    free(s->blocks);
    *s = (struct sharding){0};
}

static bool draws_by_column(const struct table_shape *shape) {
    return shape->rounding == ROUND_STOCHASTIC && table_is_narrow(shape);
}

const char *sharding_refuses(enum sharding_kind kind, const struct table_shape *shape) {
    if (kind != SHARD_COLUMN) return NULL;
    if (draws_by_column(shape))
        return "stochastic rounding draws by the column, and a shard has other columns; take "
               "column_shards in a workload, which makes tables of the parts";
    if (rule_row_states(shape->rule) || rule_sums_before(shape->rule) ||
        rule_sums_after(shape->rule) || shape->adjusts)
        return "its rule works on whole rows, and columns of a row lie on different ranks; take "
               "column_shards in a workload, which makes tables of the parts, with states of their "
               "own";
    return NULL;
}

struct table_shape sharding_shape(const struct sharding *s, const struct shard *part,
                                  const struct table_shape *shapes) {
    struct table_shape shape = shapes[part->table];
    const int32_t local = (int32_t)(part - s->shards) - s->first[part->rank];
    shape.rows = part->rows;
    shape.dim = part->columns;
    shape.part.table += part->table - local;
    shape.part.row += part->row * (1 + shape.part.row_skip);
    shape.part.row_skip = (1 + shape.part.row_skip) * (1 + part->row_skip) - 1;
    shape.part.column += part->column;
    return shape;
}
