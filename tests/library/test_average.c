/* SPDX-License-Identifier: MIT
 *
 * Averages of the weights of a training: against the mean of all snapshots in double precision; lazy as full; the
 * same bits for any number of threads. tests/library/test_average_refused.c has what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "tests/library/average_case.h"

#include "tests/support/cmocka_cases.h"

/* The weights that no average has seen move: several steps lie between updates, several updates between
 * steps, and a first update late in the training. The mean must come out at each look. */
static void averages_of_snapshots(void **state) {
    struct training *x = training_open((int)(intptr_t)*state);
    for (uint64_t n = 0; n < STEPS; n++) {
        training_step(x, n);
        if (n < 5) continue;
        for (int k = 0; k < (int)(n % 4); k++) training_update(x);
        if (n % 9 == 8) {
            training_finish(x);
            training_expect(x);
        }
    }
    training_finish(x);
    training_expect(x);
    assert_int_equal(x->averages[0].updates, 54);
    training_free(x);
}

/* A weight of the wrong time in one snapshot is beyond the bound: the test above can fail. */
static void bound_is_sharp(void **state) {
    (void)state;
    struct training *x = training_open(1);
    for (uint64_t n = 0; n < STEPS; n++) training_step(x, n), training_update(x);
    training_finish(x);
    training_expect(x);
    int64_t moved = 0, seen = 0;
    double *before = malloc(sizeof(double) * ROWS * DIM);
    for (int64_t i = 0; i < ROWS * DIM; i++)
        before[i] = (double)dtype_get((enum dtype)training_types[0], x->weight[0], i);
    training_step(x, STEPS);
    for (int64_t i = 0; i < ROWS * DIM; i++) {
        const double way =
            fabs((double)dtype_get((enum dtype)training_types[0], x->weight[0], i) - before[i]);
        moved += way > 0;
        seen += way / STEPS > training_bound(x, 0, 8);
    }
    assert_true(moved > ROWS * DIM / 4);
    assert_true(seen > moved * 9 / 10);
    free(before);
    training_free(x);
}

/* The first snapshot is a copy, in bits, of rows that a step has touched and of others. */
static void first_update_copies(void **state) {
    (void)state;
    struct training *x = training_open(2);
    for (uint64_t n = 0; n < 3; n++) training_step(x, n);
    training_update(x);
    training_step(x, 3);
    training_finish(x);
    for (int i = 0; i < AVERAGES; i++)
        for (int64_t r = 0; r < ROWS; r++)
            for (int d = 0; d < DIM; d++)
                assert_true((double)x->data[i][r * STRIDE + d] ==
                            x->expected[i / WAYS / KINDS][i / WAYS % KINDS][r * DIM + d]);
    training_free(x);
}

/* After an update, only rows that a batch looks up have caught up, and they alone. */
static void lazy_rows_wait(void **state) {
    (void)state;
    struct training *x = training_open(2);
    training_step(x, 0);
    training_update(x);
    training_update(x);
    training_step(x, 1);
    char seen[TABLES][ROWS] = {{0}};
    for (int f = 0; f < FEATURES; f++)
        for (int64_t i = x->offsets[f * BAGS]; i < x->offsets[(f + 1) * BAGS]; i++)
            seen[training_tables[f]][x->ids[i]] = 1;
    for (int i = 0; i < AVERAGES; i++)
        for (int r = 0; x->row_updates[i] && r < ROWS; r++) {
            assert_int_equal(x->row_updates[i][r], seen[x->averages[i].table][r] ? 2 : 0);
            assert_int_equal(isnan(x->data[i][r * STRIDE]), !seen[x->averages[i].table][r]);
        }
    training_free(x);
}

static void same_bits(const struct training *x, const struct training *y) {
    for (int i = 0; i < AVERAGES; i++) {
        assert_memory_equal(x->data[i], y->data[i], sizeof(float) * ROWS * STRIDE);
        if (x->row_updates[i])
            assert_memory_equal(x->row_updates[i], y->row_updates[i], ROWS * sizeof(int64_t));
    }
}

static void threads_do_not_matter(void **state) {
    (void)state;
    struct training *x = training_open(1), *y = training_open(4);
    for (uint64_t n = 0; n < 10; n++) {
        training_step(x, n), training_step(y, n);
        training_update(x), training_update(y);
    }
    same_bits(x, y);
    training_finish(x), training_finish(y);
    same_bits(x, y);
    training_free(x), training_free(y);
}

/* Four threads meet at the same rows at the same time: each has a quarter of a feature's lookups. */
static void rows_that_all_threads_want(void **state) {
    (void)state;
    enum { EACH = MOST / FEATURES, ROUNDS = 60 };
    struct training *x = training_open(1), *y = training_open(4);
    for (int n = 0; n < ROUNDS; n++) {
        training_batch(x, 0), training_batch(y, 0);
        struct training *const both[] = {x, y};
        for (int k = 0; k < 2; k++) {
            for (int64_t i = 0; i < MOST; i++) both[k]->ids[i] = i % (EACH / 4);
            for (int q = 0; q <= FEATURES * BAGS; q++)
                both[k]->offsets[q] = q * (MOST / FEATURES / BAGS);
            both[k]->batch.lookups = MOST;
            training_take(both[k]);
            embfuse_average_update(both[k]->model, both[k]->averages, AVERAGES, NULL);
        }
    }
    same_bits(x, y);
    training_free(x), training_free(y);
}

/* A second training takes over weights, states, averages and counters in the middle. */
static void resumed(void **state) {
    (void)state;
    struct training *x = training_open(2), *y = training_open(2);
    for (uint64_t n = 0; n < 20; n++) {
        training_step(x, n), training_update(x);
        if (n != 9) continue;
        memcpy(y->weight, x->weight, sizeof x->weight);
        memcpy(y->state, x->state, sizeof x->state);
        for (int t = 0; t < TABLES; t++) embfuse_set_steps(y->model, t, 10, NULL);
        for (int i = 0; i < AVERAGES; i++) {
            y->averages[i] = x->averages[i];
            y->averages[i].data = y->data[i];
            y->averages[i].row_updates = y->row_updates[i];
            memcpy(y->data[i], x->data[i], sizeof(float) * ROWS * STRIDE);
            if (y->row_updates[i])
                memcpy(y->row_updates[i], x->row_updates[i], ROWS * sizeof(int64_t));
        }
    }
    for (uint64_t n = 10; n < 20; n++) training_step(y, n), training_update(y);
    training_finish(x), training_finish(y);
    same_bits(x, y);
    training_free(x), training_free(y);
}

TESTS(average) {
    const struct CMUnitTest tests[] = {
        case_test("averages of snapshots, one thread", averages_of_snapshots, (void *)1),
        case_test("averages of snapshots, three threads", averages_of_snapshots, (void *)3),
        cmocka_unit_test(bound_is_sharp),
        cmocka_unit_test(first_update_copies),
        cmocka_unit_test(lazy_rows_wait),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(rows_that_all_threads_want),
        cmocka_unit_test(resumed),
    };
    return cmocka_run_group_tests_name("average", tests, NULL, NULL);
}
