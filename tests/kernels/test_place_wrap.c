/* SPDX-License-Identifier: MIT
 *
 * A place that wraps another: it does all that the inner place does, and counts the steps. Ranks and
 * tiers of memory wrap a place in this way. The runner and the check see through it.
 */
#include <stdlib.h>

#include "harness/device/device.h"
#include "harness/measure/runner.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

struct counting {
    struct place place;
    struct place *inner;
    int64_t steps;
};

static struct place *inner_of(struct place *p) {
    return ((struct counting *)p)->inner;
}

static void counting_close(struct place *p) {
    struct place *inner = inner_of(p);
    inner->ops->close(inner);
}

static int counting_scratch_bytes(struct place *p, const struct kernel *k, size_t *bytes,
                                  struct error *err) {
    return inner_of(p)->ops->scratch_bytes(inner_of(p), k, bytes, err);
}

static int counting_scratch_open(struct place *p, struct place_scratch *s, size_t bytes,
                                 const char *what, struct error *err) {
    return inner_of(p)->ops->scratch_open(inner_of(p), s, bytes, what, err);
}

static int counting_scratch_get(struct place *p, const struct place_scratch *s, void *to,
                                struct error *err) {
    return inner_of(p)->ops->scratch_get(inner_of(p), s, to, err);
}

static void counting_scratch_close(struct place *p, struct place_scratch *s) {
    inner_of(p)->ops->scratch_close(inner_of(p), s);
}

static int counting_scratch_fill(struct place *p, struct place_scratch *s, int byte,
                                 struct error *err) {
    return inner_of(p)->ops->scratch_fill(inner_of(p), s, byte, err);
}

static int counting_run(struct place *p, const struct place_job *job, struct error *err) {
    ((struct counting *)p)->steps++;
    return inner_of(p)->ops->run(inner_of(p), job, err);
}

static int counting_time(struct place *p, const struct place_job *job, bool cold,
                         struct step_times *out, struct error *err) {
    ((struct counting *)p)->steps++;
    return inner_of(p)->ops->time(inner_of(p), job, cold, out, err);
}

static int counting_restore(struct place *p, int batch, struct error *err) {
    return inner_of(p)->ops->restore(inner_of(p), batch, err);
}

static const struct table *counting_tables(struct place *p) {
    return inner_of(p)->ops->tables(inner_of(p));
}

static int counting_get_rows(struct place *p, int32_t t, int64_t begin, int64_t end,
                             struct table *rows, struct error *err) {
    return inner_of(p)->ops->get_rows(inner_of(p), t, begin, end, rows, err);
}

static int counting_intact(struct place *p, int batch, const struct place_scratch *s,
                           struct error *err) {
    return inner_of(p)->ops->intact(inner_of(p), batch, s, err);
}

static const struct place_ops counting_ops = {.close = counting_close,
                                              .scratch_bytes = counting_scratch_bytes,
                                              .scratch_open = counting_scratch_open,
                                              .scratch_close = counting_scratch_close,
                                              .scratch_fill = counting_scratch_fill,
                                              .scratch_get = counting_scratch_get,
                                              .run = counting_run,
                                              .time = counting_time,
                                              .restore = counting_restore,
                                              .tables = counting_tables,
                                              .get_rows = counting_get_rows,
                                              .intact = counting_intact};

static void must(int status, const struct error *err) {
    if (status) fail_msg("%s", err->text);
}

/* Two steps, the second one after all rows were restored, and an iteration: each is counted, and right. */
static void is_right_and_counted(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct builder b;
    struct error err = {""};
    builder_begin(&b, 11, true);
    builder_feature(&b, builder_table(&b, 200, 12), POOL_SUM, -1);
    builder_random_bags(&b, 50, 6);
    builder_finish(&b);
    const struct place_setup setup = {.shapes = b.in.tables,
                                      .num_tables = b.in.num_tables,
                                      .batches = &b.in,
                                      .index = &b.index,
                                      .ring = 1,
                                      .threads = 2,
                                      .seed = 9};
    struct counting counting = {.place = {&counting_ops},
                                .inner = place_open(k->place, &setup, &err)};
    struct place *p = &counting.place;
    const struct rule_step steps[] = {rule_step(b.rules[0], 1)};
    const struct table_set before = {.count = 1, .shapes = b.in.tables, .seed = setup.seed};
    struct place_scratch scratch;
    const struct place_job job = {.kernel = k, .steps = steps, .scratch = &scratch};
    const struct check c = {.in = &b.in,
                            .index = &b.index,
                            .rules = b.rules,
                            .step = 1,
                            .before = tables_initial_row,
                            .before_ctx = &before,
                            .exact = b.sums_exact};
    if (!counting.inner) fail_msg("%s", err.text);
    must(runner_scratch_open(p, k, &scratch, &err), &err);
    for (int step = 1; step <= 2; step++) {
        struct check_result result;
        must(runner_step(p, &job, POISON, &err), &err);
        must(runner_check(p, &job, c, &result, &err), &err);
        assert_int_equal(counting.steps, step);
        must(p->ops->restore(p, -1, &err), &err);
        assert_int_equal(runner_check(p, &job, c, &result, &err), 1); /* no step was taken */
    }
    const char *forward = k->place == ON_HOST ? "cpu_lookup" : "cuda_lookup";
    struct place_scratch output;
    struct check_result result;
    struct place_job whole = job;
    whole.forward = registry_find(OP_FORWARD, forward, &err);
    whole.output = &output;
    must(runner_output_open(p, &setup, OP_FORWARD, &output, &err), &err);
    must(runner_step(p, &whole, POISON, &err), &err);
    must(runner_check(p, &whole, c, &result, &err), &err);
    assert_int_equal(counting.steps, 3);
    must(p->ops->scratch_fill(p, &output, POISON, &err), &err);
    assert_int_equal(runner_check(p, &whole, c, &result, &err), 1); /* no forward ran */
    p->ops->scratch_close(p, &output);
    p->ops->scratch_close(p, &scratch);
    p->ops->close(p);
    builder_free(&b);
}

TESTS(place_wrap) {
    add_kernel_tests("in a place that wraps another", is_right_and_counted, NULL);
    return run_listed("place wrap");
}
