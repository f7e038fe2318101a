/* SPDX-License-Identifier: MIT
 *
 * Sizes beyond 2^31: rows x dim, bags x dim, lookups x dim, and row numbers. 32-bit arithmetic
 * there is the most common defect (PyTorch #165095 and #188467, HugeCTR #382, FBGEMM #1511 and
 * #1186).
 *
 * Tables and gradients are reserved, not filled: a batch touches a few rows at both ends and around
 * the edge, and only these have pages. The test computes and compares them row by row.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/device/device.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { HITS = 8 };

struct overflow {
    const char *name;
    int64_t rows, bags,
        per_bag; /* per_bag: lookups in each bag, or 0: only in the bags at the edge */
    int32_t dim;
    enum pooling pooling;
    bool weighted;
};

#define EDGE (INT64_C(1) << 31)

static const struct overflow cases[] = {
    {"rows x dim > 2^31", EDGE / 96 + 1000, HITS, 0, 96, POOL_SUM, false},
    {"rows > 2^31", EDGE + 1000, HITS, 0, 1, POOL_SUM, false},
    {"bags x dim > 2^31", 100, EDGE / 1000 + 1000, 0, 1000, POOL_SUM, false},
    {"lookups x dim > 2^31", 100, 1, EDGE / 1000 + 1000, 1000, POOL_NONE, false},
    {"lookups x dim > 2^31, weighted", 100, 1, EDGE / 1000 + 1000, 1000, POOL_NONE, true},
};
enum { CASES = sizeof cases / sizeof *cases };

/* The tests take no more memory than this from the machine. */
static const size_t most_scratch = (size_t)3 << 28;

/* --- where the lookups are */

/* Hit h of things 0 .. count-1 of `width` floats each: at the ends, and on both sides of 2^31
 * floats. Hits 1 and 7 are the same thing. */
static int64_t thing_at(int h, int64_t count, int64_t width) {
    int64_t edge = EDGE / width;
    const int64_t things[HITS] = {0, 1, edge - 1, edge, edge + 1, count - 2, count - 1, 1};
    return things[h];
}

static int64_t row_of_hit(const struct overflow *c, int h) {
    if (c->rows * c->dim > EDGE) return thing_at(h, c->rows, c->dim);
    static const int64_t rows[HITS] = {0, 1, 63, 64, 65, 99, 7, 1};
    return rows[h];
}

/* The bag of a hit, or its lookup in a sequence, in ascending order. */
static int64_t place_of_hit(const struct overflow *c, int h) {
    int64_t places = c->per_bag ? c->per_bag : c->bags;
    if (places == HITS) return h;
    return h < HITS - 1 ? thing_at(h, places - 1, c->dim) : places - 1;
}

static float grad_of_hit(int h, int32_t d) {
    return (float)((h * 5 + d * 3) % 17 - 8) * 0x1p-6f;
}

static float weight_of_hit(const struct overflow *c, int h) {
    return c->weighted ? (float)(1 << h % 3) : 1;
}

/* --- memory that is mostly not resident */

struct sparse {
    struct batch in;
    struct table_shape shape;
    struct feature feature;
    struct table table;
    struct rule rule;
    void *map[8];
    size_t mapped[8];
    int maps;
};

/* Reserved memory of zeros, or NULL if the system refuses. */
static void *reserve(struct sparse *s, int64_t count, size_t size) {
    size_t bytes = (size_t)count * size;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, bytes, MADV_NOHUGEPAGE); /* a touched row costs one page, not 512 */
    s->map[s->maps] = p;
    s->mapped[s->maps++] = bytes;
    return p;
}

static void release(struct sparse *s) {
    for (int i = 0; i < s->maps; i++) munmap(s->map[i], s->mapped[i]);
}

/* Everything that a kernel's shape functions read. */
static void make_shape(const struct overflow *c, const struct kernel *k, struct sparse *s) {
    int64_t lookups = c->per_bag ? c->per_bag : HITS;
    enum rule_kind rule = kernel_applies(k, RULE_adagrad) ? RULE_adagrad : RULE_sgd;
    *s = (struct sparse){
        .shape = {.rows = c->rows, .dim = c->dim, .rule = rule, .features = 1, .lookups = lookups},
        .feature = {.pooling = c->pooling,
                    .padding_id = c->per_bag ? 2 : -1,
                    .grad_stride = c->dim,
                    .bags = c->bags,
                    .lookups = lookups},
        .rule = rule_default(rule)};
    s->rule.param[RULE_LR] = 0x1p-4f; /* makes SGD with a step per lookup exact too */
    static const float some;
    s->in = (struct batch){.num_tables = 1,
                           .num_features = 1,
                           .flat_bags = c->bags,
                           .lookups = lookups,
                           .tables = &s->shape,
                           .features = &s->feature,
                           .id_type = ID_INT64,
                           .lookup_weights = c->weighted ? &some : NULL,
                           .grad_elements = (c->per_bag ? lookups : c->bags) * c->dim};
}

/* All lookups but the hits are padding: their gradient rows have no pages. */
static bool make_batch(const struct overflow *c, struct sparse *s) {
    int64_t *ids = reserve(s, s->in.lookups, sizeof *ids);
    int64_t *offsets = reserve(s, c->bags + 1, sizeof *offsets);
    float *weights = c->weighted ? reserve(s, s->in.lookups, sizeof *weights) : NULL;
    float *grad = reserve(s, s->in.grad_elements, sizeof *grad);
    if (!ids || !offsets || (c->weighted && !weights) || !grad) return false;
    void *memory[TABLE_ARRAYS] = {NULL};
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t stride = table_memory_stride(&s->shape, a);
        if (stride) memory[a] = reserve(s, c->rows, (size_t)stride);
        if (stride && !memory[a]) return false;
    }
    s->table = table_in(&s->shape, memory);
    for (int64_t i = 0; c->per_bag && i < s->in.lookups; i++) ids[i] = s->feature.padding_id;
    for (int h = 0; h < HITS; h++) {
        int64_t place = place_of_hit(c, h), i = c->per_bag ? place : h;
        ids[i] = row_of_hit(c, h);
        if (weights) weights[i] = weight_of_hit(c, h);
        for (int32_t d = 0; d < c->dim; d++) grad[place * c->dim + d] = grad_of_hit(h, d);
    }
    for (int64_t q = 0, h = 0; q < c->bags; q++) {
        while (h < HITS && !c->per_bag && place_of_hit(c, (int)h) == q) h++;
        offsets[q + 1] = c->per_bag ? (q + 1) * c->per_bag : h;
    }
    s->in.ids = ids;
    s->in.offsets = offsets;
    s->in.lookup_weights = weights;
    s->in.grad = grad;
    return true;
}

/* --- one kernel on one of them */

static float initial(int64_t row, int32_t d, int array) {
    return (float)((row * 7 + d * 5 + array) % 31) * 0x1p-5f;
}

/* The rows before and after a hit must keep their bits, so neighbours have initial values too. */
static void set_rows(const struct overflow *c, const struct sparse *s) {
    for (int h = 0; h < HITS; h++)
        for (int64_t row = row_of_hit(c, h) - 1; row <= row_of_hit(c, h) + 1; row++)
            for (int32_t d = 0; row >= 0 && row < c->rows && d < c->dim; d++) {
                const struct row_memory m = row_memory(&s->table, &s->shape, row);
                m.weight[d] = initial(row, d, 0);
                if (m.elem[0]) m.elem[0][d] = initial(row, d, 1);
            }
}

static void compare_row(const struct overflow *c, const struct sparse *s,
                        const struct rule_step *step, int64_t row) {
    const struct row_memory got = row_memory(&s->table, &s->shape, row);
    bool hit = false;
    for (int h = 0; h < HITS; h++) hit |= row_of_hit(c, h) == row;
    for (int32_t d = 0; d < c->dim; d++) {
        float g = 0;
        for (int h = 0; h < HITS; h++)
            if (row_of_hit(c, h) == row) g += weight_of_hit(c, h) * grad_of_hit(h, d);
        float w = initial(row, d, 0), elem = initial(row, d, 1); /* a rule without sums over rows */
        if (hit) rule_apply(step, &(struct row_memory){.weight = &w, .elem = {&elem}}, 1, &g);
        assert_memory_equal(&got.weight[d], &w, sizeof w);
        if (got.elem[0]) assert_memory_equal(&got.elem[0][d], &elem, sizeof elem);
    }
}

/* Rows next to hits, and hits, of all tables. */
static void compare_rows(const struct overflow *c, const struct sparse *s,
                         const struct rule_step *step) {
    for (int h = 0; h < HITS; h++)
        for (int64_t row = row_of_hit(c, h) - 1; row <= row_of_hit(c, h) + 1; row++)
            if (row >= 0 && row < c->rows) compare_row(c, s, step, row);
}

static void run_on_host(const struct kernel *k, const struct overflow *c, struct sparse *s,
                        size_t scratch_bytes) {
    char *scratch = scratch_bytes ? reserve(s, (int64_t)scratch_bytes, 1) : NULL;
    if (scratch_bytes && !scratch) {
        release(s);
        skip();
    }
    const struct rule_step step = rule_step(s->rule, 1);
    const struct launch how = {.threads = 2, .scratch = scratch};
    if (k->plan) assert_int_equal(k->plan(&s->in, &how), 0);
    assert_int_equal(k->run(&s->in, &step, &s->table, &how), 0);
    compare_rows(c, s, &step);
}

/* --- on a device: the whole batch, but only the table rows that the test compares */

struct on_device {
    struct device_batch batch;
    struct device_tables tables;
    struct device_buffer step, scratch;
};

/* Copies the row before a hit, the hit, and the row after it, to or from the device. */
static int copy_rows(const struct overflow *c, const struct sparse *s, struct on_device *d,
                     bool to_device, struct error *err) {
    for (int h = 0; h < HITS; h++)
        for (int64_t row = row_of_hit(c, h) - 1; row <= row_of_hit(c, h) + 1; row++)
            for (int a = 0; a < TABLE_ARRAYS && row >= 0 && row < c->rows; a++) {
                const struct array *there = &d->tables.tables->array[a], *here = &s->table.array[a];
                const size_t bytes = (size_t)here->stride;
                if (!here->data) continue;
                void *far = array_row(there, row), *near = array_row(here, row);
                if (to_device ? device_put(far, near, bytes, err)
                              : device_get(near, far, bytes, err))
                    return -1;
            }
    return 0;
}

static void run_on_device(const struct kernel *k, const struct overflow *c, struct sparse *s,
                          size_t scratch_bytes) {
    struct on_device d = {0};
    struct error err;
    const struct rule_step step = rule_step(s->rule, 1);
    if (device_batch_create(&d.batch, &s->in, &err) ||
        device_tables_create(&d.tables, &s->shape, 1, &err) ||
        device_alloc(&d.step, sizeof step, "a step", &err) ||
        device_alloc(&d.scratch, scratch_bytes, "scratch", &err)) {
        release(s);
        skip(); /* the device is too small */
    }
    const struct device_job job = {.kernel = k,
                                   .in = &d.batch.batch,
                                   .steps = d.step.data,
                                   .io = d.tables.io.data,
                                   .scratch = d.scratch.data};
    if (device_set(&d.scratch, 0xff, &err) || device_put(d.step.data, &step, sizeof step, &err) ||
        copy_rows(c, s, &d, true, &err) || device_run(&job, NULL, NULL, &err) ||
        copy_rows(c, s, &d, false, &err))
        fail_msg("%s", err.text);
    compare_rows(c, s, &step);
    device_batch_free(&d.batch);
    device_tables_free(&d.tables);
    device_free(&d.step);
    device_free(&d.scratch);
}

/* A kernel that needs too much memory is skipped. An emulated device is skipped too: there a run over
 * all places takes minutes and fills all memory. */
static void right(void **state) {
    const struct kernel_test *test = *state;
    const struct kernel *k = test->kernel;
    const struct overflow *c = test->param;
    struct sparse s;
    make_shape(c, k, &s);
    const size_t bytes = k->scratch_bytes ? k->scratch_bytes(&s.in, 2) : 0;
    bool too_much = k->place == ON_HOST && bytes > most_scratch;
    if (kernel_refuses(k, &s.in) || too_much || builder_emulates(k)) skip();
    if (!make_batch(c, &s)) {
        release(&s);
        skip();
    }
    set_rows(c, &s);
    (k->place == ON_HOST ? run_on_host : run_on_device)(k, c, &s, bytes);
    release(&s);
}

TESTS(overflow) {
    for (int i = 0; i < CASES; i++) add_kernel_tests(cases[i].name, right, &cases[i]);
    return run_listed("overflow");
}
