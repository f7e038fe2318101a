/* SPDX-License-Identifier: MIT
 *
 * ZeRO-1 and ZeRO-3 on threads as ranks: three steps equal one process bit for bit with exact
 * gradients, and lie within the oracle's bound with real ones; memory and bytes sent equal their
 * formulas to the byte.
 */
#include <string.h>

#include "harness/memory.h"
#include "extras/ranks/sharding.h"
#include "extras/ranks/zero.h"
#include "extras/ranks/tests/ranks_case.h"

#include "tests/support/kernel_tests.h"

enum { STEPS = 3 };

static const struct zero_types pairs[] = {{FP16, FP16}, {BF16, FP32}, {FP32, FP32}};

/* Exact gradients: adam on all tables, whose bytes per parameter are published. */
static void build(struct builder *b, bool exact) {
    static const enum rule_kind mixed[3] = {RULE_adam, RULE_rowwise_adagrad, RULE_adagrad};
    builder_begin(b, exact ? 31 : 32, exact);
    ranks_case(b, 29, POOL_SUM, 4, 2);
    for (int32_t t = 0; t < 3; t++) builder_rule(b, t, exact ? RULE_adam : mixed[t]);
    b->step = 1;
    builder_start(b);
}

struct work {
    struct builder *b;
    struct zero_setup setup;
    bool judge; /* by the oracle, after each step */
    struct zero_report report[8];
    struct transport_bytes weights[8], gradients[8]; /* of one forward and one step */
    float *output;                                   /* of a forward after the steps, in fp32 */
    struct check_result judged;
    char wrong[1024];
};

static int live(struct transport *t, void *ctx) {
    struct work *w = ctx;
    const struct batch *in = &w->b->in;
    struct error err = {""};
    struct zero *z = NULL;
    struct table_set before = {0}, after = {0};
    const int64_t begin = sharding_bag(in->bags, t->rank, t->ranks),
                  end = sharding_bag(in->bags, t->rank + 1, t->ranks);
    int status = zero_open(&z, t, &w->setup, &err);
    if (status == 0) status = tables_create(&before, in->tables, in->num_tables, 42, &err);
    if (status == 0) status = tables_create(&after, in->tables, in->num_tables, 42, &err);
    for (int k = 0; status == 0 && k < STEPS; k++) {
        memset(t->bytes, 0, sizeof t->bytes);
        status = zero_get_tables(z, &before, &err) ||
                 zero_forward(z, in, begin, end, w->output, &err) ||
                 zero_step(z, in, begin, end, w->b->step + k, &err);
        w->weights[t->rank] = t->bytes[CHANNEL_WEIGHT];
        w->gradients[t->rank] = t->bytes[CHANNEL_GRADIENT];
        if (status == 0) status = zero_get_tables(z, &after, &err);
        if (status || t->rank || !w->judge || (k && !w->judged.ok)) continue;
        const struct check c = {.in = in,
                                .index = &w->b->index,
                                .rules = w->setup.rules,
                                .step = w->b->step + k,
                                .before = tables_copy_row,
                                .before_ctx = &before,
                                .after = after.tables,
                                .dense = true};
        w->judged = check_run(&c);
    }
    if (z) w->report[t->rank] = zero_report(z);
    if (status == 0) status = zero_forward(z, in, begin, end, w->output, &err);
    if (status == 0 && t->rank == 0)
        status = zero_get_tables(z, &w->b->tables, &err);
    else if (status == 0)
        status = zero_get_tables(z, &after, &err);
    if (status) snprintf(w->wrong, sizeof w->wrong, "rank %d: %.900s", t->rank, err.text);
    tables_free(&before);
    tables_free(&after);
    if (z) zero_close(z);
    return status ? -1 : 0;
}

static const struct variant {
    enum zero_stage stage;
    const char *offload;
    int kept[3], parted[3]; /* bytes per parameter of each pair of types: whole, and in parts */
    int passes;             /* in which weights are gathered */
} variants[] = {{ZERO_1, NULL, {4, 6, 8}, {16, 12, 8}, 1},
                {ZERO_3, NULL, {0, 0, 0}, {18, 18, 16}, 2},
                {ZERO_3, "/tmp/embfuse-zero", {0, 0, 0}, {18, 18, 16}, 2}};

/* Memory and bytes of a step, to the byte, with the padding. */
static void expect_formulas(const struct work *w, const struct variant *v, int pair, int ranks) {
    const struct batch *in = &w->b->in;
    const int64_t g = dtype_bytes(pairs[pair].gradient), p = dtype_bytes(pairs[pair].weight);
    int64_t padded = 0;
    for (int t = 0; t < 3; t++)
        padded += (in->tables[t].rows + ranks - 1) / ranks * ranks * in->tables[t].dim;
    /* With fp32 weights the shard of the weights itself stays. */
    const int64_t away = v->offload ? (v->parted[pair] - p) * padded / ranks : 0;
    for (int r = 0; r < ranks; r++) {
        const struct zero_report *x = &w->report[r];
        int64_t held = 0;
        for (int m = 0; m < ZERO_WORK; m++) held += x->held[m];
        assert_int_equal(x->padded, padded);
        assert_int_equal(x->held[ZERO_WORK], 0);
        assert_int_equal(held, v->kept[pair] * padded + v->parted[pair] * padded / ranks);
        assert_int_equal(x->offloaded, away);
        assert_int_equal(x->peak, held - away + (v->stage == ZERO_3 ? (p + g) * x->largest : 0));
        assert_int_equal(x->reductions, 3 * STEPS);
        assert_int_equal(x->gathers, v->passes * 3 * STEPS);
        assert_int_equal(w->gradients[r].sent, (ranks - 1) * (padded / ranks) * g);
        assert_int_equal(w->weights[r].sent, (ranks - 1) * (padded / ranks) * p * v->passes);
        assert_int_equal(w->weights[r].received, w->weights[r].sent);
    }
}

/* Exact gradients: the bits of one rank. */
static void equal_one_rank(const struct variant *v, int pair, bool exact) {
    static const int ranks_of[] = {1, 2, 3, 8};
    struct builder b;
    struct table_set start;
    struct error err;
    void *one = NULL;
    size_t bytes;
    build(&b, exact);
    assert_int_equal(tables_create(&start, b.in.tables, b.in.num_tables, 42, &err), 0);
    const size_t output_bytes = (size_t)b.in.grad_elements * 4;
    float *first = must_have(calloc(1, output_bytes)), *output = must_have(calloc(1, output_bytes));
    for (size_t i = 0; i < sizeof ranks_of / sizeof *ranks_of; i++) {
        const int ranks = ranks_of[i];
        struct work w = {.b = &b,
                         .setup = {v->stage, pairs[pair], &start, b.rules, v->offload},
                         .judge = pairs[pair].gradient == FP32,
                         .output = output};
        if (transport_threads(ranks, 1, 1 + (uint64_t)ranks, live, &w))
            fail_msg("%d ranks: %s", ranks, w.wrong);
        if (w.judge && !w.judged.ok) fail_msg("%d ranks: %s", ranks, w.judged.message);
        void *many = builder_snapshot(&b, &bytes);
        if (i == 0) memcpy(first, output, output_bytes);
        if (exact) assert_memory_equal(first, output, output_bytes);
        if (exact && one && memcmp(one, many, bytes))
            fail_msg("stage %d on %d ranks: other bits than one process", (int)v->stage, ranks);
        if (exact) expect_formulas(&w, v, pair, ranks);
        free(one);
        one = many;
    }
    free(one), free(first), free(output);
    tables_free(&start);
    builder_free(&b);
}

static void steps_equal_one_process(void **state) {
    (void)state;
    for (int n = 0; n < 3 * 3 * 2; n++) equal_one_rank(&variants[n / 6], n / 2 % 3, n % 2);
}

TESTS(zero) {
    add_test("steps equal one process", steps_equal_one_process, NULL, NULL);
    return run_listed("zero");
}
