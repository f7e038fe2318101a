/* SPDX-License-Identifier: MIT */
#include "tests/support/shapes.h"

/* Settings that act on most gradients of the builder, one or several at a time. */
static void draw_shared(uint64_t seed, int32_t t, float shared[RULE_SHARED]) {
    static const float values[RULE_SHARED] = {
        [GRAD_SCALE] = 0.375f, [MAXIMIZE] = 1,         [CLIP_VALUE] = 0.03f,
        [CLIP_NORM] = 0.125f,  [WEIGHT_DECAY] = 0.25f, [DECOUPLED_WEIGHT_DECAY] = 1};
    for (int k = 0; k < RULE_SHARED; k++)
        shared[k] = shape_choice(seed, 100 + (uint64_t)(t * RULE_SHARED + k), 3) ? 0 : values[k];
}

bool shape_dress(const struct shape *s, const struct kernel *k, enum rule_kind rule,
                 struct builder *b) {
    const bool adjusts =
        s->seed && !(k->traits & STEP_PER_LOOKUP) && shape_choice(s->seed, 1, 4) == 0;
    builder_rules(b, k, rule);
    builder_storage(b, k,
                    s->seed ? (int)shape_choice(s->seed, 2 + (uint64_t)rule, 6 * STORAGES)
                            : (int)(s - shapes) + (int)rule);
    for (int32_t t = 0; s->seed && t < b->in.num_tables; t++)
        if (shape_choice(s->seed, 50 + (uint64_t)t, 6) == 0) b->rules[t].param[RULE_LR] *= -1;
    for (int32_t t = 0; adjusts && t < b->in.num_tables; t++) {
        float shared[RULE_SHARED];
        draw_shared(s->seed, t, shared);
        builder_adjust(b, t, shared);
    }
    return adjusts;
}
