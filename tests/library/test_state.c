/* SPDX-License-Identifier: MIT
 *
 * A model that is saved and loaded has the same bits, and goes on with the same bits: every rule and every way to
 * store it, on the host and on an emulated device, arrays larger than what is read at once.
 */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "kernels/rules.h"
#include "tests/support/batch_builder.h"
#include "tests/library/state_case.h"

#include "tests/support/kernel_tests.h"

static void saves(struct state_case *c, const struct work_path *folder) {
    struct embfuse_error why;
    const int status = embfuse_save(c->model, folder->text, &why);
    if (status) fail_msg("status %d: %s", status, why.text);
}

static void loads(struct state_case *c, const struct work_path *folder, int64_t number) {
    struct embfuse_error why;
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    const int status = embfuse_load(c->model, folder->text, &loaded, &why);
    if (status) fail_msg("status %d: %s", status, why.text);
    assert_int_equal(loaded.number, number);
    assert_int_equal(loaded.passed_over, 0);
    assert_string_equal(loaded.damage, "");
}

static void expect_same(struct state_case *a, struct state_case *b) {
    const char *what = state_case_differs(a, b);
    if (!what) what = state_case_settings_differ(a, b);
    if (what) fail_msg("differs: %s", what);
}

enum { STORED = 16 };

/* A table stored in way 0 .. STORED-1. */
static struct embfuse_table table_of(int rule, int way, int64_t rows, int32_t dim) {
    return (struct embfuse_table){.rows = rows,
                                  .dim = dim,
                                  .weight_type = way % 4,
                                  .momentum_type = way / 4 % 2 ? EMBFUSE_BF16 : EMBFUSE_FP32,
                                  .rounding = way / 8,
                                  .rule = rule_info_of((enum rule_kind)rule)->name};
}

/* --- bits */

static void round_trip(void **state) {
    const int way = (int)(intptr_t)((const struct kernel_test *)*state)->param;
    struct embfuse_table tables[RULE_COUNT];
    for (int rule = 0; rule < RULE_COUNT; rule++)
        tables[rule] =
            table_of(rule, (rule + way) % STORED, 1 + rule % 7, 1 + (rule * 5 + way) % 19);
    const struct embfuse_options options = {.size = sizeof options, .rounding_seed = 5};
    const struct work_path folder = state_folder("round_trip");
    struct state_case from, to;
    state_case_open(&from, tables, RULE_COUNT, &options, way % 3 * 4, 1);
    state_case_open(&to, tables, RULE_COUNT, NULL, way % 2 * 8, 2);
    for (int32_t t = 0; t < RULE_COUNT; t++) {
        embfuse_set_steps(from.model, t, t * 1000, NULL);
        embfuse_set(from.model, t, "lr", 0.1 * t, NULL);
        embfuse_set(from.model, t, "grad_scale", 2 + t,
                    NULL); /* the first and the last shared one */
        embfuse_set(from.model, t, "decoupled_weight_decay", 1, NULL);
    }
    assert_string_equal(state_case_differs(&from, &to), "bits of a row");
    saves(&from, &folder);
    loads(&to, &folder, 1);
    expect_same(&from, &to);
    state_case_free(&from);
    state_case_free(&to);
}

/* One table: names without its number. */
static void names(void **state) {
    (void)state;
    struct embfuse_table tables[2] = {table_of(RULE_adam_row_bias, 0, 3, 2),
                                      table_of(RULE_adam_row_bias, 0, 3, 2)};
    for (int count = 1; count <= 2; count++) {
        const struct work_path folder = state_folder("names");
        struct state_case c;
        state_case_open(&c, tables, count, NULL, 0, 1);
        saves(&c, &folder);
        static const char *const wanted[2][5] = {
            {"manifest", "weight.npy", "row_state.npy", "state.0.npy", "state.1.npy"},
            {"manifest", "weight.1.npy", "row_state.0.npy", "state.0.1.npy", "state.1.0.npy"}};
        for (int i = 0; i < 5; i++) {
            char name[60];
            snprintf(name, sizeof name, "state-00000001/%s", wanted[count - 1][i]);
            if (!state_exists(&folder, name)) fail_msg("%s is missing", name);
        }
        state_case_free(&c);
    }
}

/* Several chunks, whose last one is short; rows that are larger than a chunk. */
static void large(void **state) {
    (void)state;
    const struct embfuse_table tables[] = {table_of(RULE_sgd, 0, 70001, 31),
                                           table_of(RULE_sgd, 1, 3, (5 << 20) / 2 + 1),
                                           table_of(RULE_rowwise_adagrad, 3, 1 << 20, 5)};
    for (int64_t gap = 0; gap <= 4; gap += 4) {
        const struct work_path folder = state_folder("large");
        struct state_case from, to;
        state_case_open(&from, tables, 3, NULL, gap, 1);
        state_case_open(&to, tables, 3, NULL, 4 - gap, 2);
        saves(&from, &folder);
        loads(&to, &folder, 1);
        expect_same(&from, &to);
        state_case_free(&from);
        state_case_free(&to);
        state_no_folder("large");
    }
}

/* Numbers whose text is easily wrong. */
static void numbers(void **state) {
    (void)state;
    static const float values[] = {0.1f,         1e-8f,   0.118105225f,   FLT_MIN,
                                   FLT_TRUE_MIN, FLT_MAX, 16777217.0f,    1 / 3.0f,
                                   0.9999999f,   -0.0f,   -1.1754942e-38f};
    const struct embfuse_table table = table_of(RULE_adam, 0, 2, 2);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const struct embfuse_options options = {
            .size = sizeof options, .rounding_seed = i % 2 ? UINT64_MAX : 1ull << 53 | 1};
        const struct work_path folder = state_folder("numbers");
        struct state_case from, to;
        state_case_open(&from, &table, 1, &options, 0, 1);
        state_case_open(&to, &table, 1, NULL, 0, 2);
        assert_int_equal(embfuse_set(from.model, 0, "lr", (double)values[i], NULL), 0);
        embfuse_set(from.model, 0, "eps", fabs((double)values[i]), NULL);
        embfuse_set(from.model, 0, "weight_decay", (double)values[i] > 0 ? 0.01 : 0, NULL);
        embfuse_set_steps(from.model, 0, INT64_MAX / 2 - (int64_t)i, NULL);
        saves(&from, &folder);
        loads(&to, &folder, 1);
        expect_same(&from, &to);
        state_case_free(&from);
        state_case_free(&to);
    }
}

/* A program with decimal commas: the text has points all the same. */
static void locale_with_commas(void **state) {
    (void)state;
    const struct work_path at = state_folder("locales");
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", at.text);
    if (system(command) == 0) setenv("LOCPATH", at.text, 1);
    const bool found = setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
    unsetenv("LOCPATH");
    if (!found) skip(); /* there is no such locale, nor the source of one */
    const struct embfuse_table table = table_of(RULE_adam, 0, 2, 2);
    const struct work_path folder = state_folder("locale");
    struct state_case from, to;
    state_case_open(&from, &table, 1, NULL, 0, 1);
    state_case_open(&to, &table, 1, NULL, 0, 2);
    embfuse_set(from.model, 0, "lr", 0.0625, NULL);
    saves(&from, &folder);
    loads(&to, &folder, 1);
    assert_int_equal(*localeconv()->decimal_point, ',');
    setlocale(LC_NUMERIC, "C");
    state_case_scramble(&to, 3);
    loads(&to, &folder, 1);
    expect_same(&from, &to);
    state_case_free(&from);
    state_case_free(&to);
}

/* --- a resumed training */

struct resume {
    int rule, way, place;
};

/* 2k steps at once, and k, a save, a load into another model, k more with another number of threads. */
static void resumes(const struct resume *r) {
    enum { K = 3 };
    const struct embfuse_table tables[] = {table_of(r->rule, r->way, 40, 13),
                                           table_of(RULE_rowwise_adagrad, 9, 25, 16)};
    struct embfuse_options options = {.size = sizeof options,
                                      .place = r->place,
                                      .threads = 3,
                                      .rounding_seed = 77,
                                      .kernel = r->place == EMBFUSE_HOST ? "cpu_fused" : NULL};
    const struct work_path folder = state_folder("resume");
    struct state_case whole, first, second;
    state_case_open(&whole, tables, 2, &options, 16, 1);
    state_case_open(&first, tables, 2, &options, 0, 2);
    options.threads = 1;
    options.rounding_seed = 1;
    state_case_open(&second, tables, 2, &options, 32, 3);
    for (struct state_case *c = &whole; c; c = c == &whole ? &first : NULL) {
        state_case_begin(c, 4);
        embfuse_set(c->model, -1, "lr", 0.37, NULL);
        embfuse_set(c->model, -1, "weight_decay", 0.01, NULL);
    }
    for (uint64_t n = 0; n < 2 * K; n++) state_case_step(&whole, n);
    for (uint64_t n = 0; n < K; n++) state_case_step(&first, n);
    if (!state_case_differs(&whole, &first)) fail_msg("the steps change nothing");
    saves(&first, &folder);
    loads(&second, &folder, 1);
    expect_same(&first, &second);
    for (uint64_t n = K; n < 2 * K; n++) state_case_step(&second, n);
    expect_same(&whole, &second);
    state_case_free(&whole);
    state_case_free(&first);
    state_case_free(&second);
}

static void resume_on_the_host(void **state) {
    const int rule = (int)(intptr_t)((const struct kernel_test *)*state)->param;
    resumes(&(struct resume){rule, rule == RULE_adam ? 0 : 8 + rule % 8, EMBFUSE_HOST});
}

static void resume_on_a_device(void **state) {
    if (!registry_find(OP_STEP, "cuda_fused", &(struct error){""})) skip();
    const int rule = (int)(intptr_t)((const struct kernel_test *)*state)->param;
    resumes(&(struct resume){rule, rule == RULE_adam ? 0 : 9, EMBFUSE_DEVICE});
}

/* What was saved on the host is loaded on a device, and the other way. */
static void host_and_device(void **state) {
    (void)state;
    if (!registry_find(OP_STEP, "cuda_fused", &(struct error){""})) skip();
    const struct embfuse_table tables[] = {table_of(RULE_adam, 5, 300, 24),
                                           table_of(RULE_rowwise_adagrad, 0, 2000, 1024),
                                           table_of(RULE_adam_row_bias, 3, 5, 7)};
    for (int way = 0; way < 4; way++) {
        const struct embfuse_options device = {.size = sizeof device, .place = EMBFUSE_DEVICE};
        const struct work_path folder = state_folder("device");
        struct state_case from, to;
        state_case_open(&from, tables, 3, way % 2 ? &device : NULL, way / 2 * 16, 1);
        state_case_open(&to, tables, 3, way % 2 ? NULL : &device, way / 2 * 48, 2);
        saves(&from, &folder);
        loads(&to, &folder, 1);
        expect_same(&from, &to);
        state_case_free(&from);
        state_case_free(&to);
    }
}

/* --- generations */

static void two_states_stay(void **state) {
    (void)state;
    const struct embfuse_table table = table_of(RULE_adagrad, 0, 3, 2);
    const struct work_path folder = state_no_folder("two"); /* the save makes it */
    struct state_case from, to;
    state_case_open(&from, &table, 1, NULL, 0, 1);
    state_case_open(&to, &table, 1, NULL, 0, 2);
    for (int n = 1; n <= 5; n++) {
        state_case_scramble(&from, (uint64_t)n);
        saves(&from, &folder);
        loads(&to, &folder, n);
        expect_same(&from, &to);
        for (int k = 1; k <= 6; k++) {
            char name[40];
            snprintf(name, sizeof name, "state-%08d", k);
            assert_int_equal(state_exists(&folder, name), k <= n && k >= n - 1);
        }
        if (n > 1) continue; /* files of others, and what a crash has left */
        static const char *const others[] = {"state/two/state-7", "state/two/state-00000007x",
                                             "state/two/20240101", "state/two/state-00000009.old"};
        for (int i = 0; i < 4; i++)
            assert_int_equal(work_write(work_path(others[i], "x").text, "x", 1), 0);
        work_write(work_path("state/two/state-00000002.part", "weight.npy").text, "x", 1);
        work_write(work_path("state/two/state-00000004.part", "manifest").text, "x", 1);
    }
    assert_false(state_exists(&folder, "state-00000002.part"));
    assert_false(state_exists(&folder, "state-00000004.part"));
    assert_true(state_exists(&folder, "state-7/x") && state_exists(&folder, "20240101/x") &&
                state_exists(&folder, "state-00000007x/x") &&
                state_exists(&folder, "state-00000009.old/x"));
    state_case_free(&from);
    state_case_free(&to);
}

TESTS(state) {
    for (intptr_t way = 0; way < STORED; way++) {
        char name[60];
        snprintf(name, sizeof name, "every rule, stored in way %d", (int)way);
        add_test(name, round_trip, NULL, (const void *)way);
    }
    add_test("names of files", names, NULL, NULL);
    add_test("arrays larger than a chunk", large, NULL, NULL);
    add_test("numbers of the manifest", numbers, NULL, NULL);
    add_test("a locale with commas", locale_with_commas, NULL, NULL);
    for (intptr_t rule = 0; rule < RULE_COUNT; rule++) {
        char name[80];
        snprintf(name, sizeof name, "resume: %s", rule_info_of((enum rule_kind)rule)->name);
        add_test(name, resume_on_the_host, NULL, (const void *)rule);
    }
    static const int on_device[] = {RULE_adam, RULE_rowwise_adagrad, RULE_adam_row_bias};
    for (int i = 0; i < 3; i++) {
        char name[80];
        snprintf(name, sizeof name, "resume on a device: %s",
                 rule_info_of((enum rule_kind)on_device[i])->name);
        add_test(name, resume_on_a_device, NULL, (const void *)(intptr_t)on_device[i]);
    }
    add_test("from host to device and back", host_and_device, NULL, NULL);
    add_test("two states stay", two_states_stay, NULL, NULL);
    return run_listed("state");
}
