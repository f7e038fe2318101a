/* SPDX-License-Identifier: MIT
 *
 * What must hold between two runs of a kernel, independent of the right numbers: order of bags,
 * split gradients, tables apart or together, lookups of other rows, threads and repetition. No
 * oracle is used, but for untouched rows. Batches are drawn; SEED=4711 takes that one alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"

enum { DRAWS = 6 };

static void fail_at(uint64_t seed, const char *what) {
    fail_msg("SEED=%llu repeats it: %s", (unsigned long long)seed, what);
}

static void build_drawn(struct builder *b, const struct kernel *k, uint64_t seed, bool exact) {
    const struct shape s = shape_drawn(seed);
    shape_build(&s, k, exact, b);
}

/* One of the rules that this kernel can tell apart. */
static enum rule_kind rule_for(const struct kernel *k, uint64_t seed) {
    int distinct[RULE_COUNT], count = 0;
    for (int r = 0; r < RULE_COUNT; r++)
        if (builder_distinct(k, r)) distinct[count++] = r;
    return (enum rule_kind)distinct[shape_choice(seed, 7, (uint64_t)count)];
}

static void run(struct builder *b, const struct kernel *k, int way, uint64_t seed) {
    const char *wrong = builder_run(b, k, way);
    if (wrong) fail_at(seed, wrong);
}

/* --- batches made of a drawn one */

enum change { AS_IT_IS_DRAWN, BAGS_REVERSED, EVEN_ROWS };

/* The bags of feature f of `from`, changed. */
static void copy_bags(struct builder *b, const struct builder *from, int32_t f,
                      enum change change) {
    const int64_t bags = from->in.bags, *at = from->in.offsets + f * bags;
    int64_t *ids = malloc((size_t)(from->in.lookups + 1) * sizeof *ids);
    for (int64_t q = 0; q < bags; q++) {
        const int64_t bag = change == BAGS_REVERSED ? bags - 1 - q : q;
        int64_t count = 0;
        for (int64_t i = at[bag]; i < at[bag + 1]; i++)
            if (change != EVEN_ROWS || from->ids[i] % 2 == 0) ids[count++] = from->ids[i];
        builder_bag(b, count, ids);
    }
    free(ids);
}

/* Each gradient row of `b` is that of the same bag of `from`. */
static void copy_grads(struct builder *b, const struct builder *from, int32_t f, int32_t other,
                       enum change change) {
    const int64_t bags = from->in.bags;
    const int32_t dim = from->shapes[from->features[other].table].dim;
    for (int64_t q = 0; q < b->in.bags; q++) {
        const int64_t bag = change == BAGS_REVERSED ? bags - 1 - q : q;
        for (int32_t d = 0; d < dim; d++)
            builder_grad(b, f, q)[d] = builder_grad(from, other, bag)[d];
    }
}

/* The drawn lookups as sums without weights, changed; of one table alone, or of all: -1. grads: a
 * batch of the same lookups whose gradients it gets; NULL: its own. */
static void rebuild(struct builder *b, const struct builder *from, enum change change,
                    int32_t table, const struct builder *grads) {
    builder_begin(b, from->seed, from->exact);
    b->smaller = from->smaller;
    b->gap = from->gap;
    b->id_type = from->id_type;
    for (int32_t t = 0; t < from->in.num_tables; t++)
        if (table < 0 || t == table) builder_table(b, from->shapes[t].rows, from->shapes[t].dim);
    for (int32_t f = 0; f < from->in.num_features; f++) {
        const struct feature *x = &from->features[f];
        if (table >= 0 && x->table != table) continue;
        builder_feature(b, table < 0 ? x->table : 0, POOL_SUM, x->padding_id);
        copy_bags(b, from, f, change);
    }
    if (b->in.num_features == 0) {
        builder_feature(b, 0, POOL_SUM, -1);
        builder_bag(b, 0, NULL);
        grads = NULL;
    }
    builder_finish(b);
    for (int32_t f = 0, own = 0; grads && f < from->in.num_features; f++)
        if (table < 0 || from->features[f].table == table) copy_grads(b, grads, own++, f, change);
    builder_recount(b);
}

static void rules_of(struct builder *b, const struct kernel *k, enum rule_kind rule) {
    builder_rules(b, k, rule);
    builder_start(b);
}

static bool same_table(const struct table *x, const struct table *y,
                       const struct table_shape *shape) {
    bool same = true;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (table_memory_bytes(shape, a))
            same &= memcmp(x->array[a].data, y->array[a].data, table_memory_bytes(shape, a)) == 0;
    return same;
}

static void check_change(const struct kernel *k, uint64_t seed, enum change change) {
    struct builder drawn, a, b;
    build_drawn(&drawn, k, seed, true);
    rebuild(&a, &drawn, AS_IT_IS_DRAWN, -1, NULL);
    rebuild(&b, &drawn, change, -1, &a);
    assert_true(a.sums_exact && b.sums_exact);
    struct builder *both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        rules_of(both[i], k, rule_for(k, seed));
        run(both[i], k, 2, seed);
    }
    for (int32_t t = 0; t < a.in.num_tables; t++)
        if (!same_table(&a.tables.tables[t], &b.tables.tables[t], &a.in.tables[t]))
            fail_at(seed, "tables differ");
    builder_free(&drawn);
    builder_free(&a);
    builder_free(&b);
}

static void check_reversed(const struct kernel *k, uint64_t seed) {
    check_change(k, seed, BAGS_REVERSED);
}

/* --- tables in one call, or in calls of their own */

static void check_alone(const struct kernel *k, uint64_t seed) {
    struct builder drawn, all;
    build_drawn(&drawn, k, seed, true);
    rebuild(&all, &drawn, AS_IT_IS_DRAWN, -1, NULL);
    rules_of(&all, k, rule_for(k, seed));
    run(&all, k, 3, seed);
    for (int32_t t = 0; t < all.in.num_tables; t++) {
        const struct table_shape *shape = &all.in.tables[t];
        struct builder alone;
        rebuild(&alone, &drawn, AS_IT_IS_DRAWN, t, &all);
        builder_rule(&alone, 0, all.rules[t].kind);
        alone.rules[0] = all.rules[t];
        builder_start(&alone);
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (table_memory_bytes(shape, a))
                memcpy(alone.tables.tables->array[a].data, all.before.tables[t].array[a].data,
                       table_memory_bytes(shape, a));
        run(&alone, k, 3, seed);
        if (!same_table(&all.tables.tables[t], alone.tables.tables, shape))
            fail_at(seed, "a table alone differs");
        builder_free(&alone);
    }
    builder_free(&drawn);
    builder_free(&all);
}

/* --- OWN_LOOKUPS: without the lookups of all odd rows, even rows get the same bits */

static void check_even_rows(const struct kernel *k, uint64_t seed) {
    struct builder drawn, all, even;
    build_drawn(&drawn, k, seed, false);
    rebuild(&all, &drawn, AS_IT_IS_DRAWN, -1, NULL);
    rebuild(&even, &drawn, EVEN_ROWS, -1, &all);
    rules_of(&all, k, RULE_rowwise_adagrad);
    rules_of(&even, k, RULE_rowwise_adagrad);
    run(&all, k, 3, seed);
    run(&even, k, 3, seed);
    for (int32_t t = 0; t < all.in.num_tables; t++)
        for (int64_t row = 0; row < all.shapes[t].rows; row += 2) {
            const struct array *x = &all.tables.tables[t].weight,
                               *y = &even.tables.tables[t].weight;
            if (memcmp(array_row(x, row), array_row(y, row), (size_t)all.shapes[t].dim * 4))
                fail_at(seed, "an even row depends on odd ones");
        }
    builder_free(&drawn);
    builder_free(&all);
    builder_free(&even);
}

/* --- more threads than work, and more than the padding of an array has room for */

static void check_threads(const struct kernel *k, uint64_t seed) {
    static const int threads[] = {5, 32, 64};
    struct builder b;
    build_drawn(&b, k, seed, seed % 2);
    builder_rules(&b, k, rule_for(k, seed));
    const char *wrong = builder_check(&b, k, threads[seed % 3]);
    if (wrong) fail_at(seed, wrong);
    builder_free(&b);
}

/* --- untouched rows */

/* Values that arithmetic would change: a step with a zero gradient quiets a signalling NaN,
 * flushing to zero loses a subnormal. */
static void set_odd(struct builder *b, int32_t t, int64_t row) {
    static const uint32_t odd[] = {0x7fa00001, 0x00000001, 0x80000000, 0xff800000, 0x80000123};
    for (int a = 0; a < TABLE_ARRAYS; a++)
        for (int64_t d = 0, w = table_array_width(&b->shapes[t], a); d < w; d++)
            memcpy((float *)array_row(&b->tables.tables[t].array[a], row) + d, &odd[(d + a) % 5],
                   sizeof *odd);
}

static void check_untouched(const struct kernel *k, uint64_t seed) {
    struct builder b;
    build_drawn(&b, k, seed, false);
    rules_of(&b, k, rule_for(k, seed));
    int64_t u = 0;
    for (int32_t t = 0; t < b.in.num_tables; t++)
        for (int64_t row = 0; row < b.shapes[t].rows; row++) {
            const bool touched =
                u < b.index.rows && b.index.run[u].table == t && b.index.run[u].row == row;
            if (touched)
                u++;
            else
                set_odd(&b, t, row);
        }
    assert_int_equal(u, b.index.rows);
    run(&b, k, 2, seed);
    const char *wrong = builder_judge(&b, k);
    if (wrong) fail_at(seed, wrong);
    builder_free(&b);
}

/* --- sums begin at 0 */

static const struct shape *pinned(const char *name) {
    for (int i = 0; i < num_shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    abort();
}

/* Gradients of 0 leave weights and states of 0 as they are, bit for bit: this test notices a float
 * that elsewhere is as good as 0. */
static void sums_begin_at_zero(void **state) {
    static const char *const names[] = {"hot rows, weighted", "small tables, weighted"};
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    for (int i = 0; i < 2; i++) {
        struct builder b;
        shape_build(pinned(names[i]), k, false, &b);
        memset(b.grad, 0, (size_t)b.in.grad_elements * sizeof *b.grad);
        builder_rules(&b, k,
                      k->traits & STEP_PER_LOOKUP ? RULE_sgd
                      : i                         ? RULE_rowwise_adagrad
                                                  : RULE_adam);
        for (int32_t t = 0; t < b.in.num_tables; t++)
            if (builder_moves(b.rules[t], 0)) builder_rule(&b, t, RULE_sgd); /* it counts steps */
        builder_start(&b);
        for (int32_t t = 0; t < b.in.num_tables; t++)
            for (int a = 0; a < TABLE_ARRAYS; a++)
                if (b.tables.tables[t].array[a].data)
                    memset(b.tables.tables[t].array[a].data, 0,
                           table_memory_bytes(&b.shapes[t], a));
        const char *wrong = builder_run(&b, k, 2);
        if (wrong) fail_msg("%s", wrong);
        size_t bytes, zeros = 0;
        unsigned char *now = builder_snapshot(&b, &bytes);
        while (zeros < bytes && now[zeros] == 0) zeros++;
        free(now);
        assert_int_equal(zeros, bytes);
        builder_free(&b);
    }
}

/* --- NaN and infinity */

/* Whether one of the middle bags of the features of a table, whose gradients are odd, looks up the
 * row. */
static bool row_gets_odd(const struct builder *b, int32_t table, int64_t row) {
    for (int32_t f = 0; f < b->in.num_features; f++) {
        const int64_t *at = b->in.offsets + f * b->in.bags + b->in.bags / 2;
        for (int64_t i = at[0]; b->features[f].table == table && i < at[1]; i++)
            if (b->ids[i] == row && row != b->features[f].padding_id) return true;
    }
    return false;
}

/* repeats: two runs give the same bits; on a real device the order of atomics does not repeat, and
 * a step per lookup rounds after each. */
static void compare_row(const struct builder *b, const struct builder *clean, bool repeats,
                        int32_t t, int64_t row) {
    bool differs = false, odd = false;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(&b->shapes[t], a);
        if (!width) continue;
        const float *now = array_row(&b->tables.tables[t].array[a], row);
        const float *was = array_row(&clean->tables.tables[t].array[a], row);
        differs |= memcmp(now, was, (size_t)width * sizeof *now) != 0;
        for (int64_t d = 0; d < width; d++) odd |= !isfinite(now[d]);
    }
    const bool gets = row_gets_odd(b, t, row);
    if (gets ? !odd : odd || (repeats && differs))
        fail_msg("SEED=%llu: table %d row %d: %s", (unsigned long long)b->seed, t, (int)row,
                 gets ? "lost it" : "got it");
}

/* Such a gradient reaches the rows that are looked up with it, and no others. */
static void check_odd(const struct kernel *k, uint64_t seed) {
    const bool repeats = !(k->traits & STEP_PER_LOOKUP) || builder_emulates(k);
    struct builder drawn, b, clean;
    build_drawn(&drawn, k, seed, true);
    rebuild(&clean, &drawn, AS_IT_IS_DRAWN, -1, NULL);
    rebuild(&b, &drawn, AS_IT_IS_DRAWN, -1, &clean);
    for (int32_t f = 0; f < b.in.num_features; f++)
        builder_grad(&b, f, b.in.bags / 2)[0] = (seed + (uint64_t)f) % 2 ? NAN : -INFINITY;
    rules_of(&clean, k, RULE_sgd);
    rules_of(&b, k, RULE_sgd);
    run(&clean, k, 2, seed);
    run(&b, k, 2, seed);
    for (int32_t t = 0; t < b.in.num_tables; t++)
        for (int64_t row = 0; row < b.shapes[t].rows; row++)
            compare_row(&b, &clean, repeats, t, row);
    builder_free(&drawn);
    builder_free(&b);
    builder_free(&clean);
}

/* --- determinism */

/* Real gradients, so that sums depend on the order; twice in each way. */
static void check_bits(const struct kernel *k, const struct shape *s, enum rule_kind rule) {
    struct builder b;
    void *first = NULL;
    shape_build(s, k, false, &b);
    builder_rules(&b, k, rule);
    for (int i = 0; i < 2 * builder_ways(k); i++) {
        size_t bytes;
        builder_start(&b);
        const char *wrong = builder_run(&b, k, builder_way[i / 2]);
        if (wrong) fail_msg("%s", wrong);
        void *now = builder_snapshot(&b, &bytes);
        if (first && memcmp(first, now, bytes) != 0)
            fail_msg("%s, SEED=%llu, %s: run %d differs from the first", s->name,
                     (unsigned long long)s->seed, builder_name_way(k, builder_way[i / 2]), i + 1);
        if (first) free(now);
        first = first ? first : now;
    }
    free(first);
    builder_free(&b);
}

static void check_drawn_bits(const struct kernel *k, uint64_t seed) {
    const struct shape s = shape_drawn(seed);
    check_bits(k, &s, rule_for(k, seed));
}

static void same_bits(void **state) {
    static const char *const names[] = {"long runs, weighted, shared", "long run alone",
                                        "hot rows, weighted", "small tables, weighted"};
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    if (!(k->traits & DETERMINISTIC)) skip();
    for (uint64_t i = 0; i < 4; i++) check_bits(k, pinned(names[i]), rule_for(k, 1 + i));
}

/* --- all of them on drawn batches */

static const struct property {
    const char *name;
    void (*check)(const struct kernel *k, uint64_t seed);
    unsigned needs, lacks; /* traits of kernels that have it */
    bool on_host;
} properties[] = {
    /* A step per lookup rounds the weight at each lookup, so that its bits depend on their
     * order. */
    {"bags in reverse", check_reversed, 0, STEP_PER_LOOKUP},
    {"tables in calls of their own", check_alone, 0, STEP_PER_LOOKUP},
    {"even rows keep their bits", check_even_rows, OWN_LOOKUPS, 0},
    {"many threads", check_threads, 0, 0, true},
    {"untouched rows", check_untouched, 0, DENSE_STEP}, /* which touches all */
    {"NaN and infinity", check_odd, 0, 0},
    {"same bits on every run", check_drawn_bits, DETERMINISTIC, 0},
};
enum { PROPERTIES = sizeof properties / sizeof *properties };

static bool has(const struct kernel *k, const struct property *p) {
    return k->operation == OP_STEP && (k->traits & p->needs) == p->needs &&
           !(k->traits & p->lacks) && !(p->on_host && k->place != ON_HOST);
}

static void holds(void **state) {
    const struct kernel_test *test = *state;
    const struct property *p = test->param;
    const struct draws d = shape_draws(DRAWS);
    for (uint64_t seed = d.first; seed < d.first + d.count; seed++) p->check(test->kernel, seed);
}

TESTS(properties) {
    for (int i = 0; i < PROPERTIES; i++)
        for (const struct registered *r = registry(); r->kernel; r++)
            if (has(r->kernel, &properties[i]))
                add_test(properties[i].name, holds, r->kernel, &properties[i]);
    add_kernel_tests("sums begin at 0", sums_begin_at_zero, NULL);
    add_kernel_tests("same bits of long runs", same_bits, NULL);
    return run_listed("properties");
}
