/* SPDX-License-Identifier: MIT
 *
 * The hyper-parameters that all rules share (kernels/adjust.h): steps worked by hand, for the oracle and for
 * rule_apply(), and every kernel against the oracle.
 */
#include <string.h>

#include "harness/check/oracle.h"
#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"

struct setting {
    const char *name;
    float shared[RULE_SHARED];
};

/* --- steps of SGD on two elements, lr 1/2, worked by hand */

struct by_hand {
    struct setting with;
    double w[2], g[2], after[2];
};

static const struct by_hand steps[] = {
    /* w = 1 - 0.5*6, 2 - 0.5*-8 */
    {{"nothing shared", {0}}, {1, 2}, {6, -8}, {-2, 6}},
    /* g = 0.25*6, 0.25*-8 */
    {{"scaled", {[GRAD_SCALE] = 0.25f}}, {1, 2}, {6, -8}, {0.25, 3}},
    {{"maximized", {[MAXIMIZE] = 1}}, {1, 2}, {6, -8}, {4, -2}},
    /* g = 4, -4: the sign stays */
    {{"value clipped", {[CLIP_VALUE] = 4}}, {1, 2}, {6, -8}, {-1, 4}},
    {{"value within the clip", {[CLIP_VALUE] = 8}}, {1, 2}, {6, -8}, {-2, 6}},
    /* |g| = 10, g = 5/10*g */
    {{"norm clipped", {[CLIP_NORM] = 5}}, {1, 2}, {6, -8}, {-0.5, 4}},
    {{"norm within the clip", {[CLIP_NORM] = 10}}, {1, 2}, {6, -8}, {-2, 6}},
    {{"no norm to clip", {[CLIP_NORM] = 5}}, {1, 2}, {0, 0}, {1, 2}},
    /* g = 6 + 0.5*1, -8 + 0.5*2 */
    {{"L2", {[WEIGHT_DECAY] = 0.5f}}, {1, 2}, {6, -8}, {-2.25, 5.5}},
    /* w = (1 - 0.5*0.5)*w first: 0.75 - 3, 1.5 + 4 */
    {{"decoupled decay", {[WEIGHT_DECAY] = 0.5f, [DECOUPLED_WEIGHT_DECAY] = 1}},
     {1, 2},
     {6, -8},
     {-2.25, 5.5}},
    {{"decoupled decay of nothing", {[DECOUPLED_WEIGHT_DECAY] = 1}}, {1, 2}, {6, -8}, {-2, 6}},
    /* g = -3, 4 scaled and negated; values -3, 3.5; the norm sqrt(21.25) is below the clip; decay after the
     * clips: g = -3 + 4*1, 3.5 + 4*2; a clip after the decay would give other numbers */
    {{"all, in their order",
      {[GRAD_SCALE] = 0.5f,
       [MAXIMIZE] = 1,
       [CLIP_VALUE] = 3.5f,
       [CLIP_NORM] = 5,
       [WEIGHT_DECAY] = 4}},
     {1, 2},
     {6, -8},
     {0.5, -3.75}},
    /* g = 5/10*g = 3, -4, and then 3 + 2*1, -4 + 2*2 */
    {{"norm before decay", {[CLIP_NORM] = 5, [WEIGHT_DECAY] = 2}}, {1, 2}, {6, -8}, {-1.5, 2}},
    /* values 4, -3 before the norm of 5, g = 2.5/5*g */
    {{"value before norm", {[CLIP_VALUE] = 4, [CLIP_NORM] = 2.5f}}, {1, 2}, {9, -3}, {0, 2.75}},
};
enum { STEPS = sizeof steps / sizeof *steps };

static void by_hand(void **state) {
    const struct by_hand *c = ((const struct kernel_test *)*state)->param;
    struct rule rule = {RULE_sgd, {0.5f}, {0}};
    memcpy(rule.shared, c->with.shared, sizeof rule.shared);
    struct num g[2] = {{c->g[0], 0}, {c->g[1], 0}}, w[2] = {{c->w[0], 0}, {c->w[1], 0}};
    struct oracle_row row = {.weight = w};
    oracle_update(&rule, 1, 2, g, &row);
    float fg[2] = {(float)c->g[0], (float)c->g[1]}, fw[2] = {(float)c->w[0], (float)c->w[1]};
    const struct rule_step step = rule_step(rule, 1);
    rule_apply(&step, &(struct row_memory){.weight = fw}, 2, fg);
    for (int d = 0; d < 2; d++) {
        assert_true(w[d].value == c->after[d]);
        assert_true(w[d].error > 0 && w[d].error < 1e-5);
        assert_true(fw[d] == (float)c->after[d]);
    }
}

/* --- kernels against the oracle */

static const struct setting settings[] = {
    {"scaled, maximized", {[GRAD_SCALE] = 0.375f, [MAXIMIZE] = 1}},
    {"value clipped, L2", {[CLIP_VALUE] = 0.03f, [WEIGHT_DECAY] = 0.25f}},
    {"norm clipped", {[CLIP_NORM] = 0.125f}},
    {"decoupled decay", {[WEIGHT_DECAY] = 0.25f, [DECOUPLED_WEIGHT_DECAY] = 1}},
    {"all", {3, 1, 0.1f, 0.25f, 0.125f, 0}},
    {"all, decoupled", {3, 1, 0.1f, 0.25f, 0.125f, 1}},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* Each shape gets one rule; over the shapes, every rule has a turn. Where rules take turns, a device kernel gets every
 * second of its shapes. */
static void right(void **state) {
    const struct kernel_test *test = *state;
    const struct setting *set = test->param;
    const int nth = (int)(set - settings);
    const bool each = test->kernel->traits & STEP_PER_LOOKUP;
    int checked = 0;
    const bool fewer = test->kernel->place == ON_DEVICE && builder_rules_take_turns(test->kernel);
    for (int i = nth; i < num_shapes; i += fewer ? 2 * SETTINGS : SETTINGS) {
        const bool exact = shapes[i].modes != REAL_ONLY && (shapes[i].modes == EXACT_ONLY || i % 2);
        struct builder b;
        shape_build(&shapes[i], test->kernel, exact, &b);
        const enum rule_kind rule = (enum rule_kind)(i % RULE_COUNT);
        builder_rules(&b, test->kernel, each ? RULE_sgd : rule);
        builder_storage(&b, test->kernel, i + nth);
        for (int32_t t = 0; t < b.in.num_tables; t++)
            if (t % 3 != 2) builder_adjust(&b, t, set->shared);
        if (each) {
            assert_non_null(strstr(kernel_refuses(test->kernel, &b.in), "step per lookup"));
        } else {
            const char *wrong =
                builder_check(&b, test->kernel, builder_way[i % builder_ways(test->kernel)]);
            /* Sums that may be 0 decide nothing about a rule that divides by the length of a row. */
            if (wrong && (exact || !strstr(wrong, "undecided")))
                fail_msg("%s: %s", shapes[i].name, wrong);
        }
        checked++;
        builder_free(&b);
    }
    assert_true(checked > (fewer ? 2 : 5));
}

/* A check that ignores a setting would accept the step without it. */
static void each_setting_shows(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        struct rule rule = rule_default(RULE_sgd);
        float w[3] = {1, -2, 3}, g[3] = {1, 0.5f, -0.25f};
        float plain_w[3] = {1, -2, 3}, plain_g[3] = {1, 0.5f, -0.25f};
        const struct rule_step plain = rule_step(rule, 1);
        memcpy(rule.shared, settings[i].shared, sizeof rule.shared);
        const struct rule_step with = rule_step(rule, 1);
        rule_apply(&plain, &(struct row_memory){.weight = plain_w}, 3, plain_g);
        rule_apply(&with, &(struct row_memory){.weight = w}, 3, g);
        assert_true(memcmp(w, plain_w, sizeof w) != 0);
    }
}

TESTS(adjust) {
    for (int i = 0; i < STEPS; i++) add_test(steps[i].with.name, by_hand, NULL, &steps[i]);
    add_test("each setting shows in a step", each_setting_shows, NULL, NULL);
    for (int i = 0; i < SETTINGS; i++) add_kernel_tests(settings[i].name, right, &settings[i]);
    return run_listed("adjust");
}
