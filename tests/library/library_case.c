/* SPDX-License-Identifier: MIT */
#include "tests/library/library_case.h"

#include <stdlib.h>
#include <string.h>

void library_case_begin(struct library_case *c, const struct builder *b) {
    const struct batch *in = &b->in;
    *c = (struct library_case){.tables = calloc((size_t)in->num_tables, sizeof *c->tables),
                               .features = calloc((size_t)in->num_features, sizeof *c->features)};
    if (!c->tables || !c->features) abort();
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct table_shape *x = &b->shapes[t];
        c->tables[t] = (struct embfuse_table){.rows = x->rows,
                                              .dim = x->dim,
                                              .weight_type = (int32_t)x->weight_type,
                                              .momentum_type = (int32_t)x->momentum_type,
                                              .rounding = (int32_t)x->rounding,
                                              .rule = rule_info_of(x->rule)->name};
    }
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &b->features[f];
        c->features[f] = (struct embfuse_feature){x->table, (int32_t)x->pooling, x->padding_id,
                                                  x->grad_offset, x->grad_stride};
    }
    c->options = (struct embfuse_options){
        .size = sizeof c->options, .grad_type = (int32_t)in->grad_type, .rounding_seed = b->seed};
    c->batch = (struct embfuse_batch){.size = sizeof c->batch,
                                      .bags = in->bags,
                                      .lookups = in->lookups,
                                      .ids = in->ids,
                                      .offsets = in->offsets,
                                      .lookup_weights = in->lookup_weights,
                                      .winners = (int32_t *)in->winners,
                                      .id_type = (int32_t)in->id_type};
}

void library_case_free(struct library_case *c) {
    free(c->tables);
    free(c->features);
    *c = (struct library_case){0};
}

static int bind_arrays(struct embfuse_model *m, int32_t t, const struct table_shape *shape,
                       const struct table *table, struct embfuse_error *why) {
    int status = 0;
    int32_t i = 0;
    for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++)
        if (table_array_width(shape, a))
            status = embfuse_bind(m, t, i++, table->array[a].data, table->array[a].stride, why);
    return status;
}

static int set_hypers(struct embfuse_model *m, int32_t t, const struct rule *rule,
                      struct embfuse_error *why) {
    const struct rule_info info = rule_info(rule->kind);
    struct rule copy = *rule;
    int status = 0;
    for (int k = 0; status == 0 && k < RULE_HYPERS; k++)
        if (rule_hyper(&info, k).name)
            status =
                embfuse_set(m, t, rule_hyper(&info, k).name, (double)*rule_value(&copy, k), why);
    return status;
}

struct embfuse_model *library_case_open(const struct library_case *c, const struct builder *b,
                                        const struct table *tables, struct embfuse_error *why) {
    struct embfuse_model *m;
    int status = embfuse_model_create(&m, c->tables, b->in.num_tables, c->features,
                                      b->in.num_features, &c->options, why);
    for (int32_t t = 0; status == 0 && t < b->in.num_tables; t++) {
        status = bind_arrays(m, t, &b->shapes[t], &(tables ? tables : b->tables.tables)[t], why);
        if (status == 0) status = set_hypers(m, t, &b->rules[t], why);
        if (status == 0) status = embfuse_set_steps(m, t, b->step - 1, why);
    }
    if (status == 0) return m;
    embfuse_model_free(m);
    return NULL;
}
