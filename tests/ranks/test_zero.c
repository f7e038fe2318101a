/* SPDX-License-Identifier: MIT
 *
 * ZeRO-1 and ZeRO-3 on threads as ranks: three steps equal one process bit for bit with exact
 * gradients, and lie within the oracle's bound with real ones; memory and bytes sent equal their
 * formulas to the byte.
 */
#include <string.h>

#include "harness/memory.h"
#include "ranks/sharding.h"
#include "ranks/zero.h"
#include "tests/ranks/ranks_case.h"

#include "tests/support/kernel_tests.h"

enum { STEPS = 3 };

static const struct zero_types pairs[] = {{FP16, FP16}, {BF16, FP32}, {FP32, FP32}};

static void build(struct builder *b, bool exact, const enum rule_kind rules[3]) {
    builder_begin(b, exact ? 31 : 32, exact);
    ranks_case(b, 29, POOL_SUM, 4, 2);
    for (int32_t t = 0; t < 3; t++) builder_rule(b, t, rules[t]);
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

static void run(struct work *w, struct builder *b, enum zero_stage stage, struct zero_types types,
                int ranks, const char *offload) {
    struct table_set start;
    struct error err;
    assert_int_equal(tables_create(&start, b->in.tables, b->in.num_tables, 42, &err), 0);
    float *output = w->output;
    *w = (struct work){.b = b,
                       .setup = {stage, types, &start, b->rules, offload},
                       .judge = types.gradient == FP32,
                       .output = output};
    const int status = transport_threads(ranks, 1, 1 + (uint64_t)ranks, live, w);
    if (status) fail_msg("%d ranks: %s", ranks, w->wrong);
    tables_free(&start);
}

static const int ranks_of[] = {1, 2, 3, 4, 8};

/* Exact gradients: the bits of one rank. */
static void equal_one_rank(const struct zero_types types, enum zero_stage stage, bool exact) {
    static const enum rule_kind mixed[3] = {RULE_adam, RULE_rowwise_adagrad, RULE_adagrad};
    struct builder b;
    void *one = NULL;
    size_t bytes;
    build(&b, exact, mixed);
    const size_t output_bytes = (size_t)b.in.grad_elements * 4;
    struct work w = {.output = must_have(calloc(1, output_bytes))};
    float *output = must_have(calloc(1, output_bytes));
    for (size_t i = 0; i < sizeof ranks_of / sizeof *ranks_of; i++) {
        run(&w, &b, stage, types, ranks_of[i], NULL);
        if (w.judge && !w.judged.ok)
            fail_msg("stage %d on %d ranks: %s", (int)stage, ranks_of[i], w.judged.message);
        void *many = builder_snapshot(&b, &bytes);
        if (i == 0) memcpy(output, w.output, output_bytes);
        if (exact && one && memcmp(one, many, bytes))
            fail_msg("stage %d on %d ranks: other bits than one process", (int)stage, ranks_of[i]);
        if (exact) assert_memory_equal(output, w.output, output_bytes);
        free(one);
        one = many;
    }
    free(one), free(output), free(w.output);
    builder_free(&b);
}

static void steps_equal_one_process(void **state) {
    (void)state;
    for (int variant = 0; variant < 12; variant++)
        equal_one_rank(pairs[variant / 4], variant / 2 % 2 ? ZERO_3 : ZERO_1, variant % 2 == 0);
}

/* Adam on all tables: the published bytes per parameter, with the padding; and the bytes of a
 * step. */
static void memory_and_bytes_equal_the_formulas(void **state) {
    (void)state;
    static const enum rule_kind adam[3] = {RULE_adam, RULE_adam, RULE_adam};
    static const int kept[3] = {4, 6, 8}, parted[3] = {16, 12, 8}, zero3[3] = {18, 18, 16};
    for (int variant = 0; variant < 9; variant++) {
        struct builder b;
        build(&b, true, adam);
        const int pair = variant % 3;
        const bool third = variant >= 3, offload = variant >= 6;
        struct work w = {.output = calloc((size_t)b.in.grad_elements, 4)};
        for (size_t i = 0; i < sizeof ranks_of / sizeof *ranks_of; i++) {
            const int d = ranks_of[i];
            run(&w, &b, third ? ZERO_3 : ZERO_1, pairs[pair], d,
                offload ? "/tmp/embfuse-zero" : NULL);
            int64_t padded = 0;
            for (int t = 0; t < 3; t++)
                padded += (b.in.tables[t].rows + d - 1) / d * d * b.in.tables[t].dim;
            const int64_t g = dtype_bytes(pairs[pair].gradient),
                          p = dtype_bytes(pairs[pair].weight);
            for (int r = 0; r < d; r++) {
                const struct zero_report *x = &w.report[r];
                int64_t held = 0;
                for (int m = 0; m < ZERO_WORK; m++) held += x->held[m];
                assert_int_equal(x->padded, padded);
                assert_int_equal(x->elements, 61 * 37 + 3 * 8 + 500 * 5);
                assert_int_equal(x->held[ZERO_WORK], 0);
                assert_int_equal(held, third ? zero3[pair] * padded / d
                                             : kept[pair] * padded + parted[pair] * padded / d);
                const int64_t away = offload ? (zero3[pair] - p) * padded / d : 0;
                /* With fp32 weights the shard of the weights itself stays. */
                assert_int_equal(x->offloaded, away);
                assert_int_equal(x->peak, held - away + (third ? (p + g) * x->largest : 0));
                assert_int_equal(x->reductions, 3 * STEPS);
                assert_int_equal(x->gathers, (third ? 2 : 1) * 3 * STEPS);
                assert_int_equal(w.gradients[r].sent, (d - 1) * (padded / d) * g);
                assert_int_equal(w.weights[r].sent, (d - 1) * (padded / d) * p * (third ? 2 : 1));
                assert_int_equal(w.weights[r].received, w.weights[r].sent);
            }
        }
        free(w.output);
        builder_free(&b);
    }
}

TESTS(zero) {
    add_test("steps equal one process", steps_equal_one_process, NULL, NULL);
    add_test("memory and bytes equal the formulas", memory_and_bytes_equal_the_formulas, NULL,
             NULL);
    return run_listed("zero");
}
