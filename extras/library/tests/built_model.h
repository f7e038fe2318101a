/* SPDX-License-Identifier: MIT
 *
 * A batch builder's tables, features and batch as a model of the library. Include it last, as cmocka_cases.h.
 */
#pragma once

#include <stdlib.h>

#include "tests/support/batch_builder.h"

#include "extras/library/tests/says.h"

/* A model of a builder's tables, features, rules and step, with these arrays bound. */
static inline struct embfuse_model *built_model(const struct builder *b, const struct table *tables,
                                                int32_t place, int32_t nonfinite) {
    const struct batch *in = &b->in;
    struct embfuse_table *t = calloc((size_t)in->num_tables, sizeof *t);
    struct embfuse_feature *f = calloc((size_t)in->num_features, sizeof *f);
    const struct embfuse_options options = {.size = sizeof options,
                                            .place = place,
                                            .threads = place == EMBFUSE_HOST ? 2 : 0,
                                            .kernel = place == EMBFUSE_HOST ? "cpu_fused" : NULL,
                                            .grad_type = (int32_t)in->grad_type,
                                            .nonfinite = nonfinite,
                                            .rounding_seed = b->seed};
    struct embfuse_model *m;
    for (int32_t i = 0; i < in->num_tables; i++) {
        const struct table_shape *x = &b->shapes[i];
        t[i] = (struct embfuse_table){.rows = x->rows,
                                      .dim = x->dim,
                                      .weight_type = (int32_t)x->weight_type,
                                      .momentum_type = (int32_t)x->momentum_type,
                                      .rounding = (int32_t)x->rounding,
                                      .rule = rule_info_of(x->rule)->name};
    }
    for (int32_t i = 0; i < in->num_features; i++) {
        const struct feature *x = &b->features[i];
        f[i] = (struct embfuse_feature){.table = x->table,
                                        .pooling = (int32_t)x->pooling,
                                        .has_padding = x->padding_id >= 0,
                                        .padding_id = x->padding_id,
                                        .grad_offset = x->grad_offset,
                                        .grad_stride = x->grad_stride};
    }
    FINE(embfuse_model_create(&m, t, in->num_tables, f, in->num_features, &options, &why));
    free(t), free(f);
    for (int32_t i = 0; i < in->num_tables; i++) {
        const struct rule_info info = rule_info(b->rules[i].kind);
        struct rule rule = b->rules[i];
        int32_t n = 0;
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const struct array *x = &tables[i].array[a];
            if (table_array_width(&b->shapes[i], a))
                FINE(embfuse_bind(m, i, n++, x->data, x->stride, &why));
        }
        for (int k = 0; k < RULE_HYPERS; k++) {
            const char *name = rule_hyper(&info, k).name;
            if (name) FINE(embfuse_set(m, i, name, (double)*rule_value(&rule, k), &why));
        }
        FINE(embfuse_set_steps(m, i, b->step - 1, &why));
    }
    return m;
}

/* The batch without winners. bags: [num_features], for the call. */
static inline struct embfuse_batch built_batch(const struct batch *in, int64_t *bags) {
    for (int32_t f = 0; f < in->num_features; f++) bags[f] = in->features[f].bags;
    return (struct embfuse_batch){.size = sizeof(struct embfuse_batch),
                                  .feature_bags = bags,
                                  .lookups = in->lookups,
                                  .ids = in->ids,
                                  .offsets = in->offsets,
                                  .lookup_weights = in->lookup_weights,
                                  .id_type =
                                      in->id_type == ID_INT32 ? EMBFUSE_INT32 : EMBFUSE_INT64};
}
