/* SPDX-License-Identifier: MIT
 *
 * Device kernels at realistic sizes: more than 10^8 lookups, a row with 10^7 of them, large random
 * batches in many runs. Gradients are whole multiples of 2^-6, so that integer sums here are exact
 * in any order; the oracle would take hours. On an emulated device the same tests run at a smaller
 * size, which shows that the tests are right. (Sizes beyond 2^31 are in test_overflow.c.)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/device/device.h"
#include "kernels/rng.h"
#include "harness/workload/tables.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

struct large {
    const char *name;
    int64_t lookups, per_bag, rows;
    int32_t dim;
    int32_t (*id)(int64_t i, int64_t rows);
    int32_t units; /* gradients are -units .. units times 2^-6; 0: real ones */
    int runs;      /* with equal results */
};

/* Low rows occur far more often than high ones. */
static int32_t skewed(int64_t i, int64_t rows) {
    double u = rng_unit(77, (uint64_t)i);
    return (int32_t)(u * u * (double)rows);
}

static int32_t mostly_5(int64_t i, int64_t rows) {
    return i % 1000 == 999 ? (int32_t)(i % rows) : 5;
}

static const struct large cases[] = {
    {"1.2e8 lookups", 120000000, 100, 1 << 20, 4, skewed, 4, 1},
    {"1.1e8 lookups, bags of one", 110000000, 1, 1 << 24, 4, skewed, 4, 1},
    {"a row with 1e7 lookups", 10000000, 1000, 1000, 8, mostly_5, 1, 1},
    {"1e7 real gradients, five runs", 10000000, 50, 1000000, 32, skewed, 0, 5},
};
enum { CASES = sizeof cases / sizeof *cases };

/* The case in the size for this device. */
static struct large scaled(const struct large *c, const struct kernel *k) {
    struct large s = *c;
    if (!builder_emulates(k)) return s;
    s.lookups = c->lookups / (WITH_THREAD_SANITIZER ? 200000 : 8000);
    s.per_bag = c->per_bag > 50 ? 50 : c->per_bag;
    s.rows = c->rows > 5000 ? 5000 : c->rows;
    return s;
}

/* --- a batch of one table and one feature */

struct input {
    struct table_shape shape;
    struct feature feature;
    struct batch in;
    int32_t *ids;
    int64_t *offsets;
    float *grad;
};

static void *must(void *p) {
    if (!p) abort();
    return p;
}

static float grad_value(const struct large *c, int64_t bag, int32_t d) {
    uint32_t z = (uint32_t)rng_u64(78, (uint64_t)(bag * c->dim + d));
    if (c->units == 0) return (float)(z >> 8) * 0x1p-23f - 1.0f;
    return (float)((int32_t)(z % (2 * (uint32_t)c->units + 1)) - c->units) * 0x1p-6f;
}

static void make_input(const struct large *c, enum rule_kind rule, struct input *x) {
    int64_t bags = c->lookups / c->per_bag;
    x->shape = (struct table_shape){
        .rows = c->rows, .dim = c->dim, .rule = rule, .features = 1, .lookups = bags * c->per_bag};
    x->feature = (struct feature){.padding_id = -1, .grad_stride = c->dim};
    x->feature.lookups = x->shape.lookups;
    x->ids = must(malloc((size_t)x->shape.lookups * sizeof *x->ids));
    x->offsets = must(malloc((size_t)(bags + 1) * sizeof *x->offsets));
    x->grad = must(malloc((size_t)(bags * c->dim) * sizeof *x->grad));
#pragma omp parallel for
    for (int64_t i = 0; i < x->shape.lookups; i++) x->ids[i] = c->id(i, c->rows);
#pragma omp parallel for
    for (int64_t q = 0; q < bags; q++)
        for (int32_t d = 0; d < c->dim; d++) x->grad[q * c->dim + d] = grad_value(c, q, d);
    for (int64_t q = 0; q <= bags; q++) x->offsets[q] = q * c->per_bag;
    x->in = (struct batch){.num_tables = 1,
                           .num_features = 1,
                           .bags = bags,
                           .lookups = x->shape.lookups,
                           .tables = &x->shape,
                           .features = &x->feature,
                           .id_type = ID_INT32,
                           .ids = x->ids,
                           .offsets = x->offsets,
                           .grad = x->grad,
                           .grad_elements = bags * c->dim};
}

static void free_input(struct input *x) {
    free(x->ids);
    free(x->offsets);
    free(x->grad);
}

/* Every row's summed gradient in units of 2^-6. */
static int32_t *count_units(const struct large *c, const struct input *x) {
    int32_t *sum = must(calloc((size_t)(c->rows * c->dim), sizeof *sum));
    for (int64_t i = 0; i < x->in.lookups; i++) {
        const float *g = x->grad + i / c->per_bag * c->dim;
        for (int32_t d = 0; d < c->dim; d++)
            sum[x->ids[i] * (int64_t)c->dim + d] += (int32_t)(g[d] * 0x1p6f);
    }
    return sum;
}

/* --- the table: whole multiples of 2^-5, a row state of 1 */

static float initial(int64_t row, int32_t d) {
    return (float)((row * 7 + d * 5) % 31) * 0x1p-5f;
}

static void fill_table(const struct large *c, struct table *t) {
    for (int64_t row = 0; row < c->rows; row++) {
        float *w = array_row(&t->weight, row);
        for (int32_t d = 0; d < c->dim; d++) w[d] = initial(row, d);
        if (t->row.data) *(float *)array_row(&t->row, row) = 1;
    }
}

/* The table must equal, bit for bit, what the rule makes of the exact sum. Untouched rows have a
 * sum of 0, which the rules used here leave alone. */
static void compare(const struct large *c, const struct table *t, const struct rule_step *step,
                    const int32_t *units) {
    float *w = must(malloc((size_t)c->dim * sizeof *w)),
          *g = must(malloc((size_t)c->dim * sizeof *g));
    for (int64_t row = 0; row < c->rows; row++) {
        float state[RULE_ROW_STATES] = {1};
        for (int32_t d = 0; d < c->dim; d++) {
            w[d] = initial(row, d);
            g[d] = (float)units[row * c->dim + d] * 0x1p-6f;
        }
        rule_apply(step, &(struct row_memory){.weight = w, .row = state}, c->dim, g);
        for (int32_t d = 0; d < c->dim; d++) {
            const float *got = (const float *)array_row(&t->weight, row) + d;
            if (memcmp(got, &w[d], sizeof *got) != 0)
                fail_msg("row %lld, column %d: got %.9g, expected %.9g", (long long)row, d,
                         (double)*got, (double)w[d]);
        }
        if (t->row.data) assert_memory_equal(array_row(&t->row, row), state, sizeof *state);
    }
    free(w);
    free(g);
}

/* --- on the device */

struct resident {
    struct device_batch batch;
    struct device_tables tables;
    struct device_buffer step, scratch;
};

static void evict(struct resident *r) {
    device_batch_free(&r->batch);
    device_tables_free(&r->tables);
    device_free(&r->step);
    device_free(&r->scratch);
}

static int make_resident(struct resident *r, const struct kernel *k, const struct input *x,
                         const struct rule_step *step, struct error *err) {
    *r = (struct resident){0};
    size_t scratch = k->scratch_bytes ? k->scratch_bytes(&x->in, 1) : 0;
    return device_batch_create(&r->batch, &x->in, err) ||
           device_tables_create(&r->tables, &x->shape, 1, err) ||
           device_alloc(&r->step, sizeof *step, "a step", err) ||
           device_alloc(&r->scratch, scratch, "scratch", err) ||
           device_put(r->step.data, step, sizeof *step, err);
}

static void run(struct resident *r, const struct kernel *k, struct table *t, struct error *err) {
    const struct device_job job = {.kernel = k,
                                   .in = &r->batch.batch,
                                   .steps = r->step.data,
                                   .io = r->tables.io.data,
                                   .scratch = r->scratch.data};
    if (device_tables_put(&r->tables, t, err) || device_set(&r->scratch, 0xff, err) ||
        device_run(&job, NULL, NULL, err) || device_tables_get(&r->tables, t, err))
        fail_msg("%s", err->text);
    if (!device_intact(&r->scratch) || !device_tables_intact(&r->tables))
        fail_msg("wrote outside of its scratch or the tables");
}

static void large(void **state) {
    const struct kernel_test *test = *state;
    const struct kernel *k = test->kernel;
    const struct large c = scaled(test->param, k);
    if (c.runs > 1 && !(k->traits & DETERMINISTIC)) skip();
    enum rule_kind kind = kernel_applies(k, RULE_rowwise_adagrad) ? RULE_rowwise_adagrad : RULE_sgd;
    struct rule rule = rule_default(kind);
    rule.param[RULE_LR] = 0x1p-4f; /* makes SGD with a step per lookup exact too */
    const struct rule_step step = rule_step(rule, 1);
    struct input x;
    struct resident r;
    struct error err;
    make_input(&c, kind, &x);
    const char *refused = kernel_refuses(k, &x.in);
    if (refused || make_resident(&r, k, &x, &step, &err)) {
        print_message("# %s: %s\n", test->name, refused ? refused : err.text);
        if (!refused) evict(&r);
        free_input(&x);
        skip();
    }
    const size_t bytes = table_memory_bytes(&x.shape, TABLE_WEIGHT);
    void *memory[TABLE_ARRAYS];
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const size_t own = table_memory_bytes(&x.shape, a);
        memory[a] = own ? must(malloc(own)) : NULL;
    }
    struct table t = table_in(&x.shape, memory);
    int32_t *units = c.units ? count_units(&c, &x) : NULL;
    void *first = NULL;
    for (int i = 0; i < c.runs; i++) {
        fill_table(&c, &t);
        run(&r, k, &t, &err);
        if (units) compare(&c, &t, &step, units);
        if (first)
            assert_true(memcmp(first, t.weight.data, bytes) == 0);
        else
            first = memcpy(must(malloc(bytes)), t.weight.data, bytes);
    }
    free(first);
    free(units);
    for (int a = 0; a < TABLE_ARRAYS; a++) free(t.array[a].data);
    evict(&r);
    free_input(&x);
}

TESTS(large) {
    for (int i = 0; i < CASES; i++) add_kernel_tests_on(ON_DEVICE, cases[i].name, large, &cases[i]);
    if (kernel_tests.count == 0) {
        puts("ok 1 - large # SKIP no device kernels\n1..1");
        return 0;
    }
    return run_listed("large");
}
