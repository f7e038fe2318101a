/* SPDX-License-Identifier: MIT */
#include "extras/library/model.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "harness/registry.h"
#include "harness/workload/tables.h"

/* --- making a model */

static bool is_auto(const char *name) {
    return !name || !*name || strcmp(name, "auto") == 0;
}

static int check_table(const struct embfuse_table *t, int32_t i, struct embfuse_error *why) {
    if (t->rows < 1 || t->dim < 1)
        return said(why, EMBFUSE_INVALID, "table %d: %lld rows of %d elements; both are at least 1",
                    i, (long long)t->rows, t->dim);
    if (t->weight_type < 0 || t->weight_type >= DTYPE_COUNT)
        return said(why, EMBFUSE_INVALID,
                    "table %d: weight_type is EMBFUSE_FP32, EMBFUSE_BF16, EMBFUSE_FP16 or "
                    "EMBFUSE_FP8, not %d",
                    i, t->weight_type);
    if (t->momentum_type != EMBFUSE_FP32 && t->momentum_type != EMBFUSE_BF16)
        return said(why, EMBFUSE_INVALID,
                    "table %d: momentum_type is EMBFUSE_FP32 or EMBFUSE_BF16, not %d", i,
                    t->momentum_type);
    if (t->rounding != EMBFUSE_NEAREST && t->rounding != EMBFUSE_STOCHASTIC)
        return said(why, EMBFUSE_INVALID,
                    "table %d: rounding is EMBFUSE_NEAREST or EMBFUSE_STOCHASTIC, not %d", i,
                    t->rounding);
    return 0;
}

static int rule_named(const char *name, int32_t table, enum rule_kind *out,
                      struct embfuse_error *why) {
    for (int k = 0; name && k < RULE_COUNT; k++)
        if (strcmp(rule_info_of((enum rule_kind)k)->name, name) == 0)
            return *out = (enum rule_kind)k, 0;
    return said(why, EMBFUSE_UNKNOWN, "table %d: unknown rule '%.60s'; see rules/README.md", table,
                name ? name : "");
}

void set_rounding_seed(struct embfuse_model *m, uint64_t seed) {
    m->rounding_seed = seed;
    for (int32_t t = 0; t < m->num_tables; t++)
        m->shapes[t].rounding_key = rng_key(seed, (uint64_t)t);
}

static int add_tables(struct embfuse_model *m, const struct embfuse_table *tables,
                      struct embfuse_error *why) {
    int64_t rows = 0;
    for (int32_t i = 0; i < m->num_tables; i++) {
        const struct embfuse_table *t = &tables[i];
        enum rule_kind rule = RULE_COUNT;
        int status = check_table(t, i, why);
        if (status == 0) status = rule_named(t->rule, i, &rule, why);
        if (status) return status;
        if (t->rows > INT64_MAX - rows)
            return said(why, EMBFUSE_INVALID, "table %d: too many rows in all tables", i);
        m->shapes[i] = (struct table_shape){.rows = t->rows,
                                            .dim = t->dim,
                                            .rule = rule,
                                            .weight_type = (enum dtype)t->weight_type,
                                            .momentum_type = (enum dtype)t->momentum_type,
                                            .rounding = (enum rounding)t->rounding,
                                            .first_row = rows};
        rows += t->rows;
        m->rules[i] = rule_default(rule);
        m->weights_missing++;
        m->states_missing += embfuse_array_count(m, i) - 1;
    }
    return 0;
}

static int add_features(struct embfuse_model *m, const struct embfuse_feature *features,
                        struct embfuse_error *why) {
    m->default_layout = true;
    for (int32_t i = 0; i < m->num_features; i++) {
        const struct embfuse_feature *f = &features[i];
        if (f->table < 0 || f->table >= m->num_tables)
            return said(why, EMBFUSE_INVALID, "feature %d: table %d; it is from 0 to %d", i,
                        f->table, m->num_tables - 1);
        if (f->pooling < EMBFUSE_SUM || f->pooling > EMBFUSE_MAX)
            return said(why, EMBFUSE_INVALID,
                        "feature %d: pooling is EMBFUSE_SUM, EMBFUSE_MEAN, EMBFUSE_NONE or "
                        "EMBFUSE_MAX, not %d",
                        i, f->pooling);
        const struct table_shape *t = &m->shapes[f->table];
        if (f->has_padding < 0 || f->has_padding > 1 || f->reserved)
            return said(why, EMBFUSE_INVALID, "feature %d: has_padding is 0 or 1, reserved 0", i);
        const int64_t least = f->has_padding ? 0 : -1, end = f->has_padding ? t->rows : 1;
        if (f->padding_id < least || f->padding_id >= end)
            return said(why, EMBFUSE_INVALID,
                        "feature %d: padding_id %lld; with has_padding of 1 it is one of %lld "
                        "rows, otherwise 0",
                        i, (long long)f->padding_id, (long long)t->rows);
        m->features[i] = (struct feature){.table = f->table,
                                          .pooling = (enum pooling)f->pooling,
                                          .padding_id = f->has_padding ? f->padding_id : -1,
                                          .grad_offset = f->grad_offset,
                                          .grad_stride = f->grad_stride};
        m->default_layout &= f->grad_stride == 0;
    }
    for (int32_t i = 0; !m->default_layout && i < m->num_features; i++)
        if (features[i].grad_offset < 0 ||
            features[i].grad_stride < m->shapes[features[i].table].dim)
            return said(
                why, EMBFUSE_INVALID,
                "feature %d: grad_offset is at least 0, and grad_stride the table's dim, or 0 "
                "for all features",
                i);
    return 0;
}

/* The kernel of that name, which must run on the model's place. *out NULL: auto. */
static int kernel_named(const struct embfuse_model *m, enum operation operation, const char *name,
                        const struct kernel **out, struct embfuse_error *why) {
    struct error err;
    if (is_auto(name)) return 0;
    const struct kernel *k = registry_find(operation, name, &err);
    if (!k) return said(why, EMBFUSE_UNKNOWN, "%.500s", err.text);
    if (k->place != m->place)
        return said(why, EMBFUSE_REFUSED, "%s runs on %s; options.place says otherwise", k->name,
                    k->place == ON_HOST ? "the host" : "a device");
    static const int32_t some; /* winners come with a batch */
    const char *no = kernel_refuses(k, &(struct batch){.winners = &some,
                                                       .num_tables = m->num_tables,
                                                       .num_features = m->num_features,
                                                       .flat_bags = m->num_features,
                                                       .tables = m->shapes,
                                                       .features = m->features});
    if (no) return said(why, EMBFUSE_REFUSED, "%s: %s", k->name, no);
    *out = k;
    return 0;
}

static int allocate(struct embfuse_model *m) {
    const size_t tables = (size_t)m->num_tables, features = (size_t)m->num_features;
    m->shapes = calloc(tables, sizeof *m->shapes);
    m->rules = calloc(tables, sizeof *m->rules);
    m->steps = calloc(tables, sizeof *m->steps);
    m->tables = calloc(tables, sizeof *m->tables);
    m->nonfinite = calloc(tables, sizeof *m->nonfinite);
    m->features = calloc(features, sizeof *m->features);
    m->no_offsets = calloc(features + 1, sizeof *m->no_offsets);
    return m->no_offsets && m->shapes && m->rules && m->steps && m->tables && m->nonfinite &&
           m->features;
}

static int set_options(struct embfuse_model *m, const struct embfuse_options *o,
                       struct embfuse_error *why) {
    if (o->size != sizeof *o)
        return said(why, EMBFUSE_INVALID,
                    "options.size is %zu, but sizeof(struct embfuse_options) is %zu", o->size,
                    sizeof *o);
    if (o->place != EMBFUSE_HOST && o->place != EMBFUSE_DEVICE)
        return said(why, EMBFUSE_INVALID, "options.place is EMBFUSE_HOST or EMBFUSE_DEVICE, not %d",
                    o->place);
    if (o->threads < 0)
        return said(why, EMBFUSE_INVALID, "options.threads is %d; it is from 0 (all)", o->threads);
    if (o->grad_type < EMBFUSE_FP32 || o->grad_type > EMBFUSE_FP16)
        return said(why, EMBFUSE_INVALID,
                    "options.grad_type is EMBFUSE_FP32, EMBFUSE_BF16 or EMBFUSE_FP16, not %d",
                    o->grad_type);
    if (o->nonfinite < EMBFUSE_NONFINITE_TAKE || o->nonfinite > EMBFUSE_NONFINITE_SKIP)
        return said(why, EMBFUSE_INVALID,
                    "options.nonfinite is EMBFUSE_NONFINITE_TAKE, EMBFUSE_NONFINITE_COUNT or "
                    "EMBFUSE_NONFINITE_SKIP, not %d",
                    o->nonfinite);
    if (o->nonfinite && o->place == EMBFUSE_DEVICE)
        return said(why, EMBFUSE_REFUSED,
                    "options.nonfinite looks at gradients on the host; on a device, look at them "
                    "before the step");
    m->nonfinite_mode = o->nonfinite;
    m->place = o->place == EMBFUSE_HOST ? ON_HOST : ON_DEVICE;
    m->threads = o->threads ? o->threads : omp_get_max_threads();
    m->grad_type = (enum dtype)o->grad_type;
    return 0;
}

static int fill_model(struct embfuse_model *m, const struct embfuse_table *tables,
                      const struct embfuse_feature *features, const struct embfuse_options *o,
                      struct embfuse_error *why) {
    struct error err;
    int status = set_options(m, o, why);
    if (status == 0 && registry_ready(&err))
        status = said(why, EMBFUSE_INVALID, "%.500s", err.text);
    if (status == 0 && !allocate(m)) status = said(why, EMBFUSE_NO_MEMORY, "out of memory");
    if (status == 0) status = add_tables(m, tables, why);
    if (status == 0) set_rounding_seed(m, o->rounding_seed);
    if (status == 0) status = add_features(m, features, why);
    if (status == 0) status = kernel_named(m, OP_STEP, o->kernel, &m->step, why);
    if (status == 0) status = kernel_named(m, OP_FORWARD, o->forward, &m->forward, why);
    if (status == 0 && m->place == ON_DEVICE && device_call_open(m, &err))
        status = said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    return status;
}

int embfuse_model_create(struct embfuse_model **out, const struct embfuse_table *tables,
                         int32_t num_tables, const struct embfuse_feature *features,
                         int32_t num_features, const struct embfuse_options *options,
                         struct embfuse_error *why) {
    static const struct embfuse_options all_zero = {.size = sizeof all_zero};
    if (!out) return said(why, EMBFUSE_INVALID, "out is NULL");
    *out = NULL;
    if (!tables || !features || num_tables < 1 || num_features < 1)
        return said(why, EMBFUSE_INVALID, "a model has at least one table and one feature");
    struct embfuse_model *m = calloc(1, sizeof *m);
    if (!m) return said(why, EMBFUSE_NO_MEMORY, "out of memory");
    m->num_tables = num_tables;
    m->num_features = num_features;
    const int status = fill_model(m, tables, features, options ? options : &all_zero, why);
    if (status == 0)
        *out = m;
    else
        embfuse_model_free(m);
    return status;
}

void embfuse_model_free(struct embfuse_model *m) {
    if (!m) return;
    free_scratch(m);
    if (m->call) device_call_close(m);
    for (int32_t t = 0; m->tables && t < m->num_tables; t++) monitor_stop(&m->tables[t]);
    free(m->shapes);
    free(m->features);
    free(m->no_offsets);
    free(m->rules);
    free(m->steps);
    free(m->tables);
    free(m->nonfinite);
    free(m);
}

/* --- arrays */

int no_table(int32_t table, struct embfuse_error *why) {
    return said(why, EMBFUSE_INVALID, "the model has no table %d", table);
}

bool has_table(const struct embfuse_model *m, int32_t table) {
    return m && table >= 0 && table < m->num_tables;
}

int array_of(const struct embfuse_model *m, int32_t table, int32_t array) {
    if (!has_table(m, table)) return -1;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (table_array_width(&m->shapes[table], a) && array-- == 0) return a;
    return -1;
}

int32_t embfuse_array_count(const struct embfuse_model *m, int32_t table) {
    int32_t count = 0;
    while (array_of(m, table, count) >= 0) count++;
    return count ? count : -1;
}

static int no_array(const struct embfuse_model *m, int32_t table, int32_t array,
                    struct embfuse_error *why) {
    if (!has_table(m, table)) return no_table(table, why);
    return said(why, EMBFUSE_INVALID, "table %d has no array %d; %s has %d", table, array,
                rule_info_of(m->shapes[table].rule)->name, embfuse_array_count(m, table));
}

static void name_states(const struct rule_info *info, int a, char *text, size_t size) {
    if (a >= TABLE_ELEM) text_add(text, size, "%s", info->elem[a - TABLE_ELEM].name);
    for (int k = 0; a == TABLE_ROW_STATE && k < info->row_states; k++)
        text_add(text, size, "%s%s", k ? "," : "", info->row[k].name);
}

int embfuse_array_info(const struct embfuse_model *m, int32_t table, int32_t array,
                       struct embfuse_array *out, struct embfuse_error *why) {
    if (!out) return said(why, EMBFUSE_INVALID, "out is NULL");
    const int a = array_of(m, table, array);
    if (a < 0) return no_array(m, table, array, why);
    const struct table_shape *t = &m->shapes[table];
    const enum dtype type = table_array_type(t, a);
    const int64_t width = table_array_width(t, a);
    *out = (struct embfuse_array){.name = array_name(a),
                                  .type = (int32_t)type,
                                  .width = (int32_t)width,
                                  .row_bytes = width * dtype_bytes(type)};
    name_states(rule_info_of(t->rule), a, out->states, sizeof out->states);
    return 0;
}

int embfuse_bind(struct embfuse_model *m, int32_t table, int32_t array, void *data, int64_t stride,
                 struct embfuse_error *why) {
    IN_CALL(m, why);
    struct embfuse_array info;
    const int status = embfuse_array_info(m, table, array, &info, why);
    if (status) return status;
    const int64_t element = dtype_bytes((enum dtype)info.type);
    const int64_t align = m->place == ON_DEVICE && info.row_bytes % 16 == 0 ? 16 : element;
    if (stride == 0) stride = info.row_bytes;
    if (!data || stride < info.row_bytes)
        return said(why, EMBFUSE_INVALID, "table %d, %s: %s", table, info.name,
                    data ? "rows overlap: the stride is less than row_bytes" : "data is NULL");
    if ((uintptr_t)data % (size_t)align || stride % align)
        return said(why, EMBFUSE_INVALID,
                    "table %d, %s: data and stride are multiples of %lld bytes", table, info.name,
                    (long long)align);
    struct array *mine = &m->tables[table].array[array_of(m, table, array)];
    if (!mine->data) --*(array ? &m->states_missing : &m->weights_missing);
    *mine = (struct array){data, stride};
    return 0;
}

static const struct rule_state *state_of(const struct embfuse_model *m, int32_t table, int a,
                                         int32_t column) {
    const struct rule_info *info = rule_info_of(m->shapes[table].rule);
    return a == TABLE_ROW_STATE ? &info->row[column] : &info->elem[a - TABLE_ELEM];
}

int embfuse_initial(const struct embfuse_model *m, int32_t table, int32_t array, int32_t column,
                    double *out, struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!out) return said(why, EMBFUSE_INVALID, "out is NULL");
    const int a = array_of(m, table, array);
    if (a < 0) return no_array(m, table, array, why);
    if (a == TABLE_WEIGHT || column < 0 || column >= table_array_width(&m->shapes[table], a))
        return said(why, EMBFUSE_INVALID, "table %d, array %d: no state has column %d", table,
                    array, column);
    *out = (double)rule_initial(&m->rules[table], state_of(m, table, a, column));
    return 0;
}

int embfuse_init_states(struct embfuse_model *m, int32_t table, struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!has_table(m, table)) return no_table(table, why);
    const struct table_shape *t = &m->shapes[table];
    if (m->place == ON_DEVICE)
        return said(why, EMBFUSE_INVALID, "table %d: its states are on a device", table);
    for (int32_t i = 1; array_of(m, table, i) > 0; i++)
        if (!m->tables[table].array[array_of(m, table, i)].data)
            return said(why, EMBFUSE_INVALID, "table %d: array %d is not bound", table, i);
    if (has_threads(m->threads, why)) return EMBFUSE_FORKED;
    for (int a = TABLE_WEIGHT + 1; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(t, a);
#pragma omp parallel for num_threads(m->threads)
        for (int64_t row = 0; row < (width ? t->rows : 0); row++)
            for (int32_t d = 0; d < width; d++)
                dtype_set(table_array_type(t, a), array_row(&m->tables[table].array[a], row), d,
                          rule_initial(&m->rules[table], state_of(m, table, a, d)));
    }
    return 0;
}
