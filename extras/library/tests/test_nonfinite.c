/* SPDX-License-Identifier: MIT
 *
 * Gradients with inf and NaN: a plain loop counts the same lookups, the rows of these are the ones that a step poisons,
 * and a step that is left out changes nothing.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/forward.h"

#include "extras/library/tests/built_model.h"
#include "extras/library/tests/library_small.h"

enum { TABLES = 2, MANY_ROWS = 500, FEATURES = 4 };

/* Every pooling; a table has two features. What no lookup gets of a gradient is NaN. */
static void build(struct builder *b, int64_t bags, enum dtype type) {
    builder_begin(b, 5, true);
    for (int t = 0; t < TABLES; t++) builder_table(b, MANY_ROWS, 8);
    for (int f = 0; f < FEATURES; f++) {
        builder_feature(b, f % TABLES, (enum pooling)f, f ? 3 : -1);
        builder_random_bags(b, bags, 4);
    }
    builder_finish(b);
    b->in.grad_type = type;
    builder_pack(b);
}

/* The gradient rows of a feature. */
static int64_t rows_of(const struct batch *in, int f) {
    return feature_rows(&in->features[f]);
}

/* One element of one in `every` rows of the gradient becomes inf or NaN. */
static void poison(struct builder *b, uint64_t every) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int f = 0; f < FEATURES; f++)
        for (int64_t u = 0; u < rows_of(&b->in, f); u++) {
            const uint64_t drawn = rng_u64(7, (uint64_t)(u * FEATURES + f)) >> 8;
            if (drawn % every == 0)
                builder_grad(b, f, u)[drawn / every % 8] = bad[drawn / every / 8 % 3];
        }
    builder_pack(b);
}

/* What a step counts of the gradient, and the rows that it poisons. */
struct found {
    struct embfuse_nonfinite_counts of[TABLES];
    bool row[TABLES][MANY_ROWS];
};

/* Does lookup number `lookup` of a bag get inf or NaN from the gradient row that begins at `at`? */
static bool gets_bad(const struct batch *in, const struct feature *x, int64_t at, int64_t lookup) {
    for (int d = 0; d < 8; d++)
        if (!isfinite(batch_grad(in, at + d)) &&
            (x->pooling != POOL_MAX || in->winners[at + d] == lookup))
            return true;
    return false;
}

static struct found look(const struct batch *in) {
    struct found found = {0};
    for (int f = 0; f < FEATURES; f++)
        for (int64_t u = 0; u < rows_of(in, f); u++) {
            const struct feature *x = &in->features[f];
            const bool each = x->pooling == POOL_NONE;
            const int64_t *bag = in->offsets + x->first_bag,
                          begin = each ? x->first_lookup + u : bag[u];
            int64_t lookups = 0;
            for (int64_t i = begin; i < (each ? begin + 1 : bag[u + 1]); i++)
                if (batch_id(in, i) != x->padding_id &&
                    gets_bad(in, x, forward_row(x, u), i - begin)) {
                    found.row[x->table][batch_id(in, i)] = true;
                    lookups++;
                }
            found.of[x->table].bags += lookups > 0;
            found.of[x->table].lookups += lookups;
        }
    for (int t = 0; t < TABLES; t++) found.of[t].steps = found.of[t].lookups > 0;
    return found;
}

static void expect_counts(const struct embfuse_model *m, const struct found *found, int64_t times) {
    for (int t = 0; t < TABLES; t++) {
        struct embfuse_nonfinite_counts is;
        FINE(embfuse_nonfinite_read(m, t, &is, &why));
        assert_int_equal(is.steps, found->of[t].steps * times);
        assert_int_equal(is.bags, found->of[t].bags * times);
        assert_int_equal(is.lookups, found->of[t].lookups * times);
    }
}

static void expect_poisoned(const struct builder *b, const struct found *found) {
    for (int t = 0; t < TABLES; t++)
        for (int64_t row = 0; row < MANY_ROWS; row++) {
            const float *weight = array_row(&b->tables.tables[t].weight, row);
            bool poisoned = false;
            for (int d = 0; d < 8; d++) poisoned |= !isfinite(weight[d]);
            assert_int_equal(poisoned, found->row[t][row]);
        }
}

static void expect_steps(const struct embfuse_model *m, int64_t want) {
    int64_t steps;
    FINE(embfuse_get_steps(m, 0, &steps, &why));
    assert_int_equal(steps, want);
}

static void two_steps(struct builder *b, const struct found *found, int32_t nonfinite) {
    size_t bytes;
    builder_start(b);
    struct embfuse_model *m = built_model(b, b->tables.tables, EMBFUSE_HOST, nonfinite);
    struct embfuse_batch batch = built_batch(&b->in, (int64_t[FEATURES]){0});
    batch.winners = (int32_t *)b->in.winners;
    void *before = builder_snapshot(b, &bytes);
    for (int n = 1; n <= 2; n++) {
        FINE(embfuse_step(m, &batch, b->in.grad, &why));
        expect_counts(m, found, n);
    }
    if (nonfinite == EMBFUSE_NONFINITE_SKIP) {
        void *after = builder_snapshot(b, &bytes);
        assert_memory_equal(after, before, bytes);
        free(after);
    } else
        expect_poisoned(b, found);
    expect_steps(m, b->step - 1 + (nonfinite == EMBFUSE_NONFINITE_SKIP ? 0 : 2));
    free(before);
    embfuse_model_free(m);
}

/* The gradient of 9000 bags is read in parallel. */
static void counted_and_skipped(void **state) {
    (void)state;
    for (int type = FP32; type <= FP16; type++)
        for (int large = 0; large < 2; large++) {
            struct builder b;
            build(&b, large ? 9000 : 40, (enum dtype)type);
            poison(&b, large ? 400 : 10);
            const struct found found = look(&b.in);
            assert_true(found.of[0].lookups > 0 && found.of[1].lookups > 0);
            two_steps(&b, &found, EMBFUSE_NONFINITE_COUNT);
            two_steps(&b, &found, EMBFUSE_NONFINITE_SKIP);
            builder_free(&b);
        }
}

/* Nothing is counted of the largest numbers, and of what no lookup gets. */
static void finite_gradients(void **state) {
    (void)state;
    static const float largest[] = {FLT_MAX, 0x1.fep127f, 65504};
    for (int type = FP32; type <= FP16; type++) {
        struct builder b;
        build(&b, 40, (enum dtype)type);
        for (int64_t i = 0; i < b.in.grad_elements; i++)
            if (isfinite(b.grad[i])) b.grad[i] = i % 2 ? largest[type] : -largest[type];
        builder_pack(&b);
        builder_start(&b);
        struct embfuse_model *m =
            built_model(&b, b.tables.tables, EMBFUSE_HOST, EMBFUSE_NONFINITE_SKIP);
        struct embfuse_batch batch = built_batch(&b.in, (int64_t[FEATURES]){0});
        batch.winners = (int32_t *)b.in.winners;
        FINE(embfuse_step(m, &batch, b.in.grad, &why));
        expect_counts(m, &(struct found){0}, 1);
        expect_steps(m, b.step);
        embfuse_model_free(m);
        builder_free(&b);
    }
}

/* Without gaps, and with the gradient of the per-sample weights, an output of the backward pass: it has the NaN. */
static void without_gaps(void **state) {
    (void)state;
    const struct embfuse_options skip = {.size = sizeof skip, .nonfinite = EMBFUSE_NONFINITE_SKIP};
    static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float weight_grad[8];
    struct small s, kept;
    small_open(&s, &skip);
    s.batch.lookup_weights = ones;
    s.batch.weight_grad = weight_grad;
    s.grad[0][0] = NAN; /* of lookups 0 and 1, in table 0 */
    kept = s;
    FINE(embfuse_step(s.model, &s.batch, s.grad, &why));
    assert_memory_equal(&s, &kept, sizeof s);
    assert_true(isnan(weight_grad[0]) && isnan(weight_grad[1]) && isfinite(weight_grad[4]));
    expect_counts(s.model, &(struct found){.of[0] = {1, 1, 2}}, 1);
    s.grad[0][0] = 1;
    s.grad[1][0] = INFINITY; /* of a bag without lookups */
    FINE(embfuse_step(s.model, &s.batch, s.grad, &why));
    s.batch.bags = s.batch.lookups = 0;
    FINE(embfuse_step(s.model, &s.batch, NULL, &why));
    expect_counts(s.model, &(struct found){.of[0] = {1, 1, 2}}, 1);
    expect_steps(s.model, 2);
    embfuse_model_free(s.model);
}

TESTS(nonfinite) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_and_skipped),
        cmocka_unit_test(finite_gradients),
        cmocka_unit_test(without_gaps),
    };
    return cmocka_run_group_tests_name("nonfinite", tests, NULL, NULL);
}
