/* SPDX-License-Identifier: MIT
 *
 * Compulsory bytes, lines and gathered bytes of a batch that is small enough to count by hand, and
 * the roof that follows from them.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "harness/measure/traffic.h"

#include "tests/support/cmocka_cases.h"

/* Four features of two bags; 0 and 1 read table 0, row 5 is padding of feature 0 only.
 *
 *     feature 0   bag 0: 0 15 5    bag 1: (empty)
 *     feature 1   bag 0: 16 15     bag 1: 39
 *     feature 2   bag 0: 3         bag 1: 3 7        (table 1, a gradient row for each lookup)
 *     feature 3   bag 0: 33        bag 1: (empty)    (table 2)
 *
 * Table 0 has one state per row: rows 0 and 15 share its first line, 16 is in the second, 39 in the
 * third. Row 33 of table 2 is in the third line of another array. */
static const int64_t ids[] = {0, 15, 5, 16, 15, 39, 3, 3, 7, 33};
static const int64_t offsets[] = {0, 3, 3, 5, 6, 7, 9, 10, 10};
static const struct table_shape tables[] = {{.rows = 40, .dim = 4, .rule = RULE_rowwise_adagrad},
                                            {.rows = 20, .dim = 3, .rule = RULE_adam},
                                            {.rows = 40, .dim = 2, .rule = RULE_rowwise_adagrad}};
static const struct feature features[] = {
    {.table = 0, .padding_id = 5, .bags = 2},
    {.table = 0, .padding_id = -1, .bags = 2, .first_bag = 2},
    {.table = 1, .padding_id = -1, .pooling = POOL_NONE, .bags = 2, .first_bag = 4},
    {.table = 2, .padding_id = -1, .bags = 2, .first_bag = 6}};

static struct batch example(void) {
    return (struct batch){.num_tables = 3,
                          .num_features = 4,
                          .flat_bags = 8,
                          .lookups = 10,
                          .tables = tables,
                          .features = features,
                          .id_type = ID_INT64,
                          .ids = ids,
                          .offsets = offsets};
}

static struct traffic traffic_by(enum operation operation, const struct batch *in) {
    struct row_index x = row_index_build(in);
    struct traffic t = traffic_of(operation, in, &x);
    row_index_free(&x);
    return t;
}

/* Bytes of ids and offsets; of the gradients of 3 bags of table 0, 3 lookups of table 1 and a
 * bag of table 2, and the same gathered for each lookup; of outputs of all bags, where table 1
 * has one for each lookup; and of the weights of 4, 2 and 1 rows. */
enum {
    INDEX = 10 * 8 + 9 * 8,
    GRADS = 3 * 16 + 3 * 12 + 8,
    GATHERED = 5 * 16 + 3 * 12 + 8,
    OUTPUT = 4 * 16 + 3 * 12 + 2 * 8,
    ROWS = 4 * 16 + 2 * 12 + 8
};

struct traffic_case {
    const char *test;
    enum operation operation;
    int64_t compulsory, lines;
};

/* A step reads and writes weights and states; 3 lines and 1 line are instead of 5 states of
 * rows. A gradient writes rows with their numbers. The gradient of the per-sample weights does
 * not read them, and has 10 floats. */
static const struct traffic_case traffic_cases[] = {
    {"step", OP_STEP, INDEX + GRADS + 2 * (4 * (16 + 4) + 2 * 3 * 12 + (8 + 4)),
     INDEX + GRADS + 2 * (4 * 16 + 2 * 3 * 12 + 8) + 128 * (3 + 1)},
    {"forward", OP_FORWARD, INDEX + OUTPUT + ROWS, INDEX + OUTPUT + ROWS},
    {"gradient", OP_GRADIENT, INDEX + GRADS + ROWS + 7 * 8, INDEX + GRADS + ROWS + 7 * 8},
    {"gradient of weights", OP_WEIGHT_GRAD, INDEX + GRADS + ROWS + 10 * 4,
     INDEX + GRADS + ROWS + 10 * 4},
};

static void counted_by_hand(void **state) {
    static const float weights[10];
    const struct traffic_case *c = *state;
    struct batch in = example();
    if (c->operation == OP_WEIGHT_GRAD) in.lookup_weights = weights;
    struct traffic t = traffic_by(c->operation, &in);
    assert_int_equal(t.compulsory, c->compulsory);
    assert_int_equal(t.lines, c->lines);
    assert_int_equal(t.gathered, GATHERED);
}

/* Feature 1 has a max. Its two bags have 4 winners each, which are read or written once; a step
 * and a gradient gather the winners for its 3 lookups, and the 4 elements of each bag's gradient
 * once. */
static void winners(void **state) {
    struct feature max[4];
    struct batch in = example(), sums = example();
    (void)state;
    memcpy(max, features, sizeof max);
    max[1].pooling = POOL_MAX;
    in.features = max;
    in.grad_type = sums.grad_type = BF16;
    for (int o = 0; o < OPERATIONS; o++) {
        const struct traffic t = traffic_by((enum operation)o, &in),
                             was = traffic_by((enum operation)o, &sums);
        assert_int_equal(t.compulsory, was.compulsory + 2 * 16);
        assert_int_equal(t.lines, was.lines + 2 * 16);
        const int64_t more = operation_gathers_rows((enum operation)o) ? 0 : 3 * (16 - 8) + 2 * 8;
        assert_int_equal(t.gathered, was.gathered + more);
    }
}

/* Narrow ids have half the bytes; weights have four; states beside the weights of table 0 share the lines
 * of their rows. */
static void other_layouts(void **state) {
    static const float weights[10];
    struct table_shape beside[] = {tables[0], tables[1], tables[2]};
    int32_t narrow[10];
    struct batch in = example(), other = example();
    (void)state;
    for (int i = 0; i < 10; i++) narrow[i] = (int32_t)ids[i];
    beside[0].row_state = ROW_STATE_BESIDE;
    other.ids = narrow, other.id_type = ID_INT32, other.tables = beside;
    const struct traffic wide = traffic_by(OP_STEP, &in), t = traffic_by(OP_STEP, &other);
    assert_int_equal(t.compulsory, wide.compulsory - 10 * 4);
    assert_int_equal(t.lines, wide.lines - 10 * 4 - 128 * 3 + 2 * 4 * 4);
    other.lookup_weights = weights;
    const struct traffic weighted = traffic_by(OP_STEP, &other);
    assert_int_equal(weighted.compulsory, wide.compulsory);
    assert_int_equal(weighted.gathered, wide.gathered);
}

/* 1 GB/s moves a byte in a nanosecond. */
static void roof_is_the_longer_term(void **state) {
    const struct traffic t = {.compulsory = 1, .lines = 2000, .gathered = 9000};
    (void)state;
    assert_true(fabs(traffic_roof(&t, 1, 3) - 3e-6) < 1e-15);
    assert_true(fabs(traffic_roof(&t, 0.5, 3) - 4e-6) < 1e-15);
    assert_true(traffic_roof(&t, 0, 3) == 0);
    assert_true(traffic_roof(&t, 1, 0) == 0);
}

TESTS(traffic) {
    ADD_CASES(traffic_cases, counted_by_hand);
    ADD_TEST(winners);
    ADD_TEST(other_layouts);
    ADD_TEST(roof_is_the_longer_term);
    return run_listed("traffic");
}
