/* SPDX-License-Identifier: MIT
 *
 * The bytes that a transport counts are those of extras/ranks/formulas.h, of every rank and stage. Threads
 * are the ranks.
 */
#include <math.h>
#include <string.h>

#include "kernels/rng.h"
#include "extras/ranks/formulas.h"
#include "extras/ranks/tests/ranks_case.h"

#include "tests/support/cmocka_cases.h"

enum { MOST_RANKS = 8 };

struct work {
    struct builder *b;
    const char *sharding;
    bool all_rows;
    struct transport_bytes bytes[MOST_RANKS][CHANNELS];
    char wrong[1024];
};

/* Opening exchanges ids and gradients once; a step does both, and a lookup sends ids and
 * outputs. */
static const int times_of[CHANNELS] = {
    [CHANNEL_LENGTHS] = 3, [CHANNEL_IDS] = 3, [CHANNEL_GRADIENT] = 2, [CHANNEL_OUTPUT] = 1};

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

static double channel_of(const struct flow *x, enum channel channel) {
    return channel == CHANNEL_LENGTHS  ? x->lengths
           : channel == CHANNEL_IDS    ? x->ids
           : channel == CHANNEL_OUTPUT ? x->output
                                       : x->gradient;
}

/* What a rank sends, receives and keeps on a channel, from the flows of pairs. */
static struct transport_bytes predicted(const struct flow *pairs, int ranks, int rank,
                                        enum channel c) {
    struct transport_bytes all = {0};
    for (int r = 0; r < ranks; r++) {
        double out = channel_of(&pairs[rank * ranks + r], c),
               in = channel_of(&pairs[r * ranks + rank], c);
        if (c == CHANNEL_OUTPUT) {
            const double swap = out;
            out = in, in = swap;
        }
        if (r == rank) {
            all.kept += (int64_t)out;
            continue;
        }
        all.sent += (int64_t)out;
        all.received += (int64_t)in;
        all.messages += out > 0;
    }
    return all;
}

static void build(struct builder *b, bool weighted, enum id_type id_type) {
    builder_begin(b, 31, false);
    b->weighted = weighted;
    b->id_type = id_type;
    ranks_case(b, 21, POOL_MEAN, 5, 5);
}

static void compare(struct work *w, int ranks, int nodes) {
    struct error err;
    struct sharding s;
    struct flow pairs[MOST_RANKS * MOST_RANKS] = {{0}};
    const struct batch *in = &w->b->in;
    for (int32_t t = 0; t < in->num_tables; t++) builder_rule(w->b, t, RULE_adagrad);
    assert_int_equal(
        sharding_make(&s, w->sharding, NULL, in->tables, in->num_tables, ranks, nodes, &err), 0);
    formulas_count(&s, in, w->all_rows, pairs);
    memset(w->bytes, 0, sizeof w->bytes);
    if (transport_threads(ranks, nodes, 0, live, w)) fail_msg("%s", w->wrong);
    for (int r = 0; r < ranks; r++)
        for (int c = CHANNEL_LENGTHS; c <= CHANNEL_GRADIENT; c++) {
            const struct transport_bytes want = predicted(pairs, ranks, r, (enum channel)c),
                                         *have = &w->bytes[r][c];
            const int n = times_of[c];
            /* A dense gradient goes out table by table, once as parts of a sum and once as a
             * sum. */
            const bool dense = c == CHANNEL_GRADIENT && !strcmp(w->sharding, "data-dense");
            if (have->sent != n * want.sent || have->received != n * want.received ||
                have->kept != n * want.kept || (!dense && have->messages != n * want.messages))
                fail_msg("%s, rank %d of %d, channel %d: sent %lld, received %lld, kept %lld, "
                         "%lld messages; the formulas say %d times %lld, %lld, %lld, %lld",
                         w->sharding, r, ranks, c, (long long)have->sent, (long long)have->received,
                         (long long)have->kept, (long long)have->messages, n, (long long)want.sent,
                         (long long)want.received, (long long)want.kept, (long long)want.messages);
        }
    sharding_free(&s);
}

static const char *const shardings[] = {"data-dense", "table",           "row",
                                        "row-modulo", "column",          "data",
                                        "table-row",  "row,column,data", "data,row-modulo,table"};

static void transport_counts_what_formulas_say(void **state) {
    static const int ranks_of[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 2}, {5, 1}, {8, 2}};
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct builder b;
        build(&b, variant % 2, variant % 2 ? ID_INT32 : ID_INT64);
        for (size_t i = 0; i < sizeof shardings / sizeof *shardings; i++)
            for (size_t k = 0; k < sizeof ranks_of / sizeof *ranks_of; k++) {
                struct work w = {.b = &b, .sharding = shardings[i], .all_rows = variant / 2};
                compare(&w, ranks_of[k][0], ranks_of[k][1]);
            }
        builder_free(&b);
    }
}

/* --- bags that are alike */

enum { DIM = 16, TABLES = 8, BAGS = 64, LOOKUPS = 5 };

/* Every table has a feature, every bag as many lookups. */
static void build_alike(struct builder *b) {
    builder_begin(b, 32, false);
    b->id_type = ID_INT64;
    for (int t = 0; t < TABLES; t++) {
        builder_feature(b, builder_table(b, 4096, DIM), POOL_SUM, -1);
        for (uint64_t i = 0; i < BAGS; i++) {
            int64_t ids[LOOKUPS];
            for (uint64_t j = 0; j < LOOKUPS; j++)
                ids[j] = (int64_t)(rng_key((uint64_t)t, i * LOOKUPS + j) % 4096);
            builder_bag(b, LOOKUPS, ids);
        }
    }
    builder_finish(b);
    for (int32_t t = 0; t < b->in.num_tables; t++) builder_rule(b, t, RULE_rowwise_adagrad);
}

/* The mean over ranks of what they send to others: lengths, ids, outputs, gradients. */
enum { FLOWS = sizeof(struct flow) / sizeof(double) };
static void mean_of(const struct flow *pairs, int ranks, double mean[FLOWS]) {
    struct flow sum = {0};
    for (int r = 0; r < ranks; r++)
        for (int d = 0; d < ranks; d++)
            if (r != d) flow_add(&sum, pairs[r * ranks + d], 1.0 / ranks);
    memcpy(mean, &sum, sizeof sum);
}

/* Ids of rows are drawn, so what depends on them is near its form; all else is exact. */
static void closed_form_holds(const struct builder *b, enum sharding_kind kind, int ranks,
                              int nodes, bool all_rows) {
    struct error err;
    struct sharding s;
    struct flow pairs[MOST_RANKS * MOST_RANKS];
    const struct closed c = {.ranks = ranks,
                             .on_node = ranks / nodes,
                             .bags = (double)b->in.bags / ranks,
                             .features = TABLES,
                             .lookups = LOOKUPS,
                             .rows = (double)b->in.tables[0].rows,
                             .dim = DIM,
                             .id_bytes = 8,
                             .element = 4};
    const struct flow closed = formulas_closed(kind, all_rows, &c);
    const bool drawn = sharding_by_rows(kind);
    const double near = 0.05, exact = 1e-9, rows = drawn && !all_rows ? near : exact,
                 share[FLOWS] = {exact, drawn ? near : exact, rows, rows};
    double form[FLOWS], expected[FLOWS], counted[FLOWS];
    memcpy(form, &closed, sizeof closed);
    assert_int_equal(
        sharding_make(&s, sharding_names[kind], NULL, b->in.tables, TABLES, ranks, nodes, &err), 0);
    formulas_expect(&s, &b->in, all_rows, pairs);
    mean_of(pairs, ranks, expected);
    formulas_count(&s, &b->in, all_rows, pairs);
    mean_of(pairs, ranks, counted);
    for (int k = 0; k < FLOWS; k++)
        if (fabs(expected[k] - form[k]) > exact * form[k] ||
            fabs(counted[k] - form[k]) > share[k] * form[k])
            fail_msg("%s, %d ranks, flow %d: the form %g, expected %g, counted %g",
                     sharding_names[kind], ranks, k, form[k], expected[k], counted[k]);
    sharding_free(&s);
}

static void closed_forms_hold(void **state) {
    (void)state;
    struct builder b;
    build_alike(&b);
    for (int kind = 0; kind < SHARDINGS; kind++)
        for (int ranks = 1; ranks <= MOST_RANKS; ranks *= 2)
            for (int nodes = 1; nodes <= (ranks > 1 ? 2 : 1); nodes++)
                for (int all_rows = 0; all_rows < 2; all_rows++)
                    closed_form_holds(&b, (enum sharding_kind)kind, ranks, nodes, all_rows);
    builder_free(&b);
}

TESTS(ranks_bytes) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(transport_counts_what_formulas_say),
                                       cmocka_unit_test(closed_forms_hold)};
    return cmocka_run_group_tests_name("bytes of ranks", tests, NULL, NULL);
}
