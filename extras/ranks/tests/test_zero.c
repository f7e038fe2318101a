/* SPDX-License-Identifier: MIT
 *
 * ZeRO-1 and ZeRO-3 of a table on threads as ranks: three steps equal one process bit for bit with
 * exact gradients, and lie within the oracle's bound with real ones; memory and bytes sent equal
 * their formulas to the byte.
 */
#include <string.h>

#include "harness/memory.h"
#include "extras/ranks/deal.h"
#include "extras/ranks/zero.h"
#include "extras/ranks/tests/ranks_case.h"

#include "tests/support/kernel_tests.h"

enum { STEPS = 3, BAGS = 29 };

/* Rows that do not divide evenly, fewer rows than ranks, and more. */
static const struct {
    int64_t rows;
    int32_t dim;
    enum rule_kind rule; /* of real gradients; exact ones have adam, whose bytes are known */
} cases[] = {{23, 300, RULE_adam}, {3, 8, RULE_rowwise_adagrad}, {500, 5, RULE_adagrad}};

static void build(struct builder *b, int n, bool exact) {
    builder_begin(b, exact ? 31 : 32, exact);
    const int32_t table = builder_table(b, cases[n].rows, cases[n].dim);
    builder_feature(b, table, POOL_SUM, -1);
    builder_random_bags(b, BAGS, 4);
    builder_feature(b, table, exact ? POOL_SUM : POOL_MEAN, 1);
    builder_random_bags(b, BAGS, 2);
    builder_finish(b);
    builder_rule(b, table, exact ? RULE_adam : cases[n].rule);
    b->step = 1;
    builder_start(b);
}

struct work {
    struct builder *b;
    enum zero_stage stage;
    struct zero_report report[8];
    struct transport_bytes weights[8], gradients[8]; /* of one forward and one step */
    float *output; /* of a forward after the steps: bags of all ranks are contiguous */
    struct check_result judged;
    char wrong[1024];
};

/* Steps, each judged by the oracle. */
static int take_steps(struct work *w, struct zero *z, struct transport *t, const struct batch *own,
                      float *output, struct error *err) {
    const struct batch *in = &w->b->in;
    struct table_set before = {0}, after = {0};
    int status = tables_create(&before, in->tables, 1, 42, err) ||
                 tables_create(&after, in->tables, 1, 42, err);
    for (int k = 0; status == 0 && k < STEPS; k++) {
        memset(t->bytes, 0, sizeof t->bytes);
        status = zero_get_table(z, &before.tables[0], err) || zero_forward(z, own, output, err) ||
                 zero_step(z, own, w->b->step + k, err);
        w->weights[t->rank] = t->bytes[CHANNEL_WEIGHT];
        w->gradients[t->rank] = t->bytes[CHANNEL_GRADIENT];
        if (status == 0) status = zero_get_table(z, &after.tables[0], err);
        if (status || t->rank || (k && !w->judged.ok)) continue;
        const struct check c = {.in = in,
                                .index = &w->b->index,
                                .rules = w->b->rules,
                                .step = w->b->step + k,
                                .before = tables_copy_row,
                                .before_ctx = &before,
                                .after = after.tables,
                                .dense = true};
        w->judged = check_run(&c);
    }
    if (status == 0 && t->rank == 0)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (table_array_width(&in->tables[0], a))
                memcpy(w->b->tables.tables[0].array[a].data, after.tables[0].array[a].data,
                       table_memory_bytes(&in->tables[0], a));
    tables_free(&before);
    tables_free(&after);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct work *w = ctx;
    const struct batch *in = &w->b->in;
    const struct deal deal = deal_of(t, in);
    struct error err = {""};
    struct zero *z = NULL;
    struct table_set start = {0};
    struct batch own = {0};
    float *output =
        w->output + sharding_bag(BAGS, t->rank, t->ranks) * in->num_features * in->tables[0].dim;
    int status = tables_create(&start, in->tables, 1, 42, &err);
    if (status == 0) status = deal_batch(&deal, t->rank ? NULL : in, &own, &err);
    if (status == 0)
        status = zero_open(&z, t, w->stage, in->tables, start.tables, w->b->rules, &err);
    if (status == 0) status = take_steps(w, z, t, &own, output, &err);
    if (z) w->report[t->rank] = zero_report(z);
    if (status == 0) status = zero_forward(z, &own, output, &err);
    if (status) snprintf(w->wrong, sizeof w->wrong, "rank %d: %.900s", t->rank, err.text);
    if (z) zero_close(z);
    deal_free(&own);
    tables_free(&start);
    return status ? -1 : 0;
}

/* Memory and bytes of a step, to the byte, with the padding. */
static void expect_formulas(const struct work *w, int ranks) {
    const struct table_shape *x = &w->b->in.tables[0];
    const bool parts = w->stage == ZERO_3;
    const int64_t passes = parts ? 2 : 1, /* in which weights are gathered */
        shard = (x->rows + ranks - 1) / ranks * x->dim, padded = ranks * shard;
    for (int r = 0; r < ranks; r++) {
        const struct zero_report *found = &w->report[r];
        assert_int_equal(found->padded, padded);
        assert_int_equal(found->held, parts ? 16 * shard : 8 * padded + 8 * shard);
        assert_int_equal(found->peak, found->held + (parts ? 8 * padded : 0));
        assert_int_equal(found->reductions, STEPS);
        assert_int_equal(found->gathers, passes * STEPS);
        assert_int_equal(w->gradients[r].sent, (ranks - 1) * shard * 4);
        assert_int_equal(w->weights[r].sent, (ranks - 1) * shard * 4 * passes);
        assert_int_equal(w->weights[r].received, w->weights[r].sent);
    }
}

/* Exact gradients: the bits of one rank. */
static void equal_one_rank(enum zero_stage stage, int n, bool exact) {
    static const int ranks_of[] = {1, 2, 3, 8};
    struct builder b;
    void *one = NULL;
    size_t bytes;
    build(&b, n, exact);
    const size_t output_bytes = (size_t)b.in.grad_elements * 4;
    float *first = must_have(calloc(1, output_bytes)), *output = must_have(calloc(1, output_bytes));
    for (size_t i = 0; i < sizeof ranks_of / sizeof *ranks_of; i++) {
        const int ranks = ranks_of[i];
        struct work w = {.b = &b, .stage = stage, .output = output};
        if (transport_threads(ranks, 1, 1 + (uint64_t)ranks, live, &w))
            fail_msg("%d ranks: %s", ranks, w.wrong);
        if (!w.judged.ok) fail_msg("%d ranks: %s", ranks, w.judged.message);
        void *many = builder_snapshot(&b, &bytes);
        if (i == 0) memcpy(first, output, output_bytes);
        if (exact) assert_memory_equal(first, output, output_bytes);
        if (exact && one && memcmp(one, many, bytes))
            fail_msg("stage %d on %d ranks: other bits than one process", (int)stage, ranks);
        if (exact) expect_formulas(&w, ranks);
        free(one);
        one = many;
    }
    free(one), free(first), free(output);
    builder_free(&b);
}

static void steps_equal_one_process(void **state) {
    (void)state;
    for (int n = 0; n < 3; n++)
        for (int exact = 0; exact < 2; exact++) {
            equal_one_rank(ZERO_1, n, exact);
            equal_one_rank(ZERO_3, n, exact);
        }
}

TESTS(zero) {
    add_test("steps equal one process", steps_equal_one_process, NULL, NULL);
    return run_listed("zero");
}
