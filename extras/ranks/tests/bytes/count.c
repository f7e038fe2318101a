/* SPDX-License-Identifier: MIT
 *
 * Prints what the transport counts: for each batch a line with its tables, bags and ids, and then a line for each
 * sharding and number of ranks with [sent, received, kept, messages] of every rank and channel, after a step and a
 * lookup. Threads are the ranks. extras/ranks/tests/test_rank_model.py compares them with the formulas.
 */
#include <stdlib.h>
#include <string.h>

#include "extras/ranks/tests/ranks_case.h"

enum { MOST_RANKS = 8, BAGS = 21 };

struct work {
    struct builder *b;
    const char *sharding;
    bool all_rows;
    struct transport_bytes bytes[MOST_RANKS][CHANNELS];
    char wrong[1024];
};

/* Opening exchanges ids and gradients once; a step does both, and a lookup sends ids and outputs. */
static const int times_of[] = {
    [CHANNEL_LENGTHS] = 3, [CHANNEL_IDS] = 3, [CHANNEL_OUTPUT] = 1, [CHANNEL_GRADIENT] = 2};

static int lead(void *ctx, struct transport *t, struct error *err) {
    struct work *w = ctx;
    struct builder *b = w->b;
    const struct ranks_options options = {.sharding = w->sharding, .all_rows = w->all_rows};
    const struct place_setup setup = ranks_setup(b);
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, err);
    if (!p) return -1;
    struct place_scratch none = {0};
    struct rule_step steps[RANKS_TABLES] = {0};
    const struct place_job lookup = {
        .kernel = registry_find(OP_FORWARD, "cpu_lookup", err), .steps = steps, .scratch = &none};
    int status = ranks_steps(p, b, registry_find(OP_STEP, "cpu_sort", err), 1, err);
    if (status == 0) status = p->ops->run(p, &lookup, err);
    p->ops->close(p);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct work *w = ctx;
    const int status = ranks_live(t, lead, w, w->wrong, sizeof w->wrong);
    memcpy(w->bytes[t->rank], t->bytes, sizeof t->bytes);
    return status;
}

static void print_batch(const struct batch *in) {
    printf("{\"bags\": %lld, \"id_bytes\": %d, \"element\": %lld, \"tables\": [",
           (long long)in->features[0].bags,
           (in->id_type == ID_INT32 ? 4 : 8) + (in->lookup_weights ? 4 : 0),
           (long long)dtype_bytes(in->grad_type));
    for (int32_t t = 0; t < in->num_tables; t++)
        printf("%s[%lld, %d]", t ? ", " : "", (long long)in->tables[t].rows, in->tables[t].dim);
    printf("], \"features\": [");
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        const char *pooling = x->pooling == POOL_NONE   ? "none"
                              : x->pooling == POOL_MEAN ? "mean"
                                                        : "sum";
        printf("%s{\"table\": %d, \"pooling\": \"%s\", \"bags\": [", f ? ", " : "", x->table,
               pooling);
        for (int64_t b = x->first_bag; b < x->first_bag + x->bags; b++) {
            printf("%s[", b > x->first_bag ? ", " : "");
            for (int64_t i = in->offsets[b]; i < in->offsets[b + 1]; i++)
                printf("%s%lld", i > in->offsets[b] ? ", " : "", (long long)batch_id(in, i));
            printf("]");
        }
        printf("]}");
    }
    printf("]}\n");
}

/* The word of each table, and the rank or node that it begins on. */
static void print_words(const struct work *w, int ranks, int nodes) {
    struct sharding s;
    struct error err;
    const struct batch *in = &w->b->in;
    sharding_make(&s, w->sharding, in->tables, in->num_tables, ranks, nodes, &err);
    for (int32_t t = 0; t < in->num_tables; t++) {
        int first = 0;
        while (s.part[t * ranks + first] < 0) first++;
        printf("%s[\"%s\", %d]", t ? ", " : "", sharding_names[s.kind[t]],
               s.kind[t] == SHARD_TABLE_ROW ? first / (ranks / nodes) : first);
    }
    sharding_free(&s);
}

static int count(struct work *w, int ranks, int nodes) {
    for (int32_t t = 0; t < w->b->in.num_tables; t++) builder_rule(w->b, t, RULE_adagrad);
    if (transport_threads(ranks, nodes, 0, live, w)) return fprintf(stderr, "%s\n", w->wrong), -1;
    printf("{\"sharding\": \"%s\", \"ranks\": %d, \"nodes\": %d, \"all_rows\": %d, \"words\": [",
           w->sharding, ranks, nodes, w->all_rows);
    print_words(w, ranks, nodes);
    printf("], \"counted\": [");
    for (int r = 0; r < ranks; r++) {
        printf("%s[", r ? ", " : "");
        for (int c = CHANNEL_LENGTHS; c <= CHANNEL_GRADIENT; c++) {
            const struct transport_bytes *x = &w->bytes[r][c];
            const int n = times_of[c];
            printf("%s[%.17g, %.17g, %.17g, %.17g]", c > CHANNEL_LENGTHS ? ", " : "",
                   (double)x->sent / n, (double)x->received / n, (double)x->kept / n,
                   (double)x->messages / n);
        }
        printf("]");
    }
    printf("]}\n");
    return 0;
}

int main(void) {
    static const char *const shardings[] = {
        "data-dense", "table",           "row",
        "row-modulo", "column",          "data",
        "table-row",  "row,column,data", "data,row-modulo,table"};
    static const int ranks_of[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 2}, {5, 1}, {8, 2}};
    int status = 0;
    for (int variant = 0; variant < 4; variant++) {
        struct builder b;
        builder_begin(&b, 31, false);
        b.weighted = variant % 2;
        b.id_type = variant % 2 ? ID_INT32 : ID_INT64;
        ranks_case(&b, BAGS, POOL_MEAN, 5, 5);
        print_batch(&b.in);
        for (size_t i = 0; i < sizeof shardings / sizeof *shardings; i++)
            for (size_t k = 0; k < sizeof ranks_of / sizeof *ranks_of && status == 0; k++) {
                struct work w = {.b = &b, .sharding = shardings[i], .all_rows = variant / 2};
                status = count(&w, ranks_of[k][0], ranks_of[k][1]);
            }
        builder_free(&b);
    }
    return status ? EXIT_FAILURE : 0;
}
