/* SPDX-License-Identifier: MIT
 *
 * The hyper-parameters that all rules share (kernels/adjust.h): steps worked by hand, for the
 * oracle and for rule_apply(). Every kernel meets them in test_kernels.c.
 */
#include <string.h>

#include "harness/check/oracle.h"
#include "tests/support/batch_builder.h"

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
    /* g = 0.25*6, 0.25*-8 */
    {{"scaled", {[GRAD_SCALE] = 0.25f}}, {1, 2}, {6, -8}, {0.25, 3}},
    {{"maximized", {[MAXIMIZE] = 1}}, {1, 2}, {6, -8}, {4, -2}},
    /* g = 4, -4: the sign stays */
    {{"value clipped", {[CLIP_VALUE] = 4}}, {1, 2}, {6, -8}, {-1, 4}},
    /* |g| = 10, g = 5/10*g */
    {{"norm clipped", {[CLIP_NORM] = 5}}, {1, 2}, {6, -8}, {-0.5, 4}},
    {{"no norm to clip", {[CLIP_NORM] = 5}}, {1, 2}, {0, 0}, {1, 2}},
    /* g = 6 + 0.5*1, -8 + 0.5*2 */
    {{"L2", {[WEIGHT_DECAY] = 0.5f}}, {1, 2}, {6, -8}, {-2.25, 5.5}},
    /* w = (1 - 0.5*0.5)*w first: 0.75 - 3, 1.5 + 4 */
    {{"decoupled decay", {[WEIGHT_DECAY] = 0.5f, [DECOUPLED_WEIGHT_DECAY] = 1}},
     {1, 2},
     {6, -8},
     {-2.25, 5.5}},
    /* g = -3, 4 scaled and negated; values -3, 3.5; the norm sqrt(21.25) is below the clip; decay
     * after the clips: g = -3 + 4*1, 3.5 + 4*2; a clip after the decay would give other numbers */
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

TESTS(adjust) {
    for (int i = 0; i < STEPS; i++) add_test(steps[i].with.name, by_hand, NULL, &steps[i]);
    return run_listed("adjust");
}
