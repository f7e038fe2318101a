/* SPDX-License-Identifier: MIT
 *
 * What must hold between two runs of a kernel, independent of the right numbers: lookups of other
 * rows, threads and repetition; and what untouched rows may hold. Batches are drawn; SEED=4711 takes
 * that one alone.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/support/shapes.h"
#include "kernels/shape.h"

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

/* --- OWN_LOOKUPS: without the lookups of all odd rows, even rows get the same bits */

/* The drawn lookups as sums without weights; those of even rows alone, or all. */
static void rebuild(struct builder *b, const struct builder *from, bool even) {
    builder_begin(b, from->seed, from->exact);
    b->smaller = from->smaller;
    b->gap = from->gap;
    b->id_type = from->id_type;
    for (int32_t t = 0; t < from->in.num_tables; t++)
        builder_table(b, from->shapes[t].rows, from->shapes[t].dim);
    int64_t *ids = malloc((size_t)(from->in.lookups + 1) * sizeof *ids);
    for (int64_t q = 0; q < from->in.flat_bags; q++) {
        const struct feature *x = feature_at_bag(&from->in, q);
        int64_t count = 0;
        if (q == x->first_bag) builder_feature(b, x->table, POOL_SUM, x->padding_id);
        for (int64_t i = from->in.offsets[q]; i < from->in.offsets[q + 1]; i++)
            if (!even || from->ids[i] % 2 == 0) ids[count++] = from->ids[i];
        builder_bag(b, count, ids);
    }
    free(ids);
    builder_finish(b);
}

static void check_even_rows(const struct kernel *k, uint64_t seed) {
    struct builder drawn, all, even;
    build_drawn(&drawn, k, seed, false);
    rebuild(&all, &drawn, false);
    rebuild(&even, &drawn, true);
    struct builder *both[] = {&all, &even};
    for (int i = 0; i < 2; i++) {
        builder_rules(both[i], k, RULE_rowwise_adagrad);
        builder_start(both[i]);
        run(both[i], k, 3, seed);
    }
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
    builder_rules(&b, k, rule_for(k, seed));
    builder_start(&b);
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

/* --- determinism */

static const struct shape *pinned(const char *name) {
    for (int i = 0; i < num_shapes; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    abort();
}

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
    {"even rows keep their bits", check_even_rows, OWN_LOOKUPS, 0},
    {"many threads", check_threads, 0, 0, true},
    {"untouched rows", check_untouched, 0, DENSE_STEP}, /* which touches all */
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
    add_kernel_tests("same bits of long runs", same_bits, NULL);
    return run_listed("properties");
}
