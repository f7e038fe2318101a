/* SPDX-License-Identifier: MIT */
#include "cli/description.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/id_stats.h"

/* Adds the names of a rule's hyper-parameters that are not there yet. */
static void add_names(enum rule_kind rule, const char *names[HYPERS_MAX + 1]) {
    const struct rule_info info = rule_info(rule);
    for (int k = 0; k < RULE_HYPERS; k++) {
        const char *name = rule_hyper(&info, k).name;
        int at = 0;
        while (name && names[at] && strcmp(names[at], name) != 0) at++;
        if (name) names[at] = name;
    }
}

/* A name takes the position of the first rule that has it. */
const char *hyper_name(int i) {
    static const char *names[HYPERS_MAX + 1]; /* the last is NULL */
    for (int rule = 0; !names[i] && rule < RULE_COUNT; rule++)
        add_names((enum rule_kind)rule, names);
    return names[i];
}

int description_add_table(struct description *d, struct table_shape table, struct rule rule,
                          struct error *err) {
    const size_t count = (size_t)d->num_tables + 1;
    struct table_shape *tables = realloc(d->tables, count * sizeof *tables);
    if (tables) d->tables = tables;
    struct rule *rules = realloc(d->rules, count * sizeof *rules);
    if (rules) d->rules = rules;
    if (!tables || !rules) return fail(err, "out of memory");
    tables[d->num_tables] = table;
    rules[d->num_tables++] = rule;
    return 0;
}

int description_add_feature(struct description *d, struct feature feature, struct error *err) {
    const size_t count = (size_t)d->num_features + 1;
    struct feature *features = realloc(d->features, count * sizeof *features);
    if (!features) return fail(err, "out of memory");
    d->features = features;
    features[d->num_features++] = feature;
    return 0;
}

void description_free(struct description *d) {
    free(d->tables);
    free(d->rules);
    free(d->features);
    *d = (struct description){0};
}

void description_seed(struct description *d, uint64_t seed) {
    for (int32_t t = 0; t < d->num_tables; t++)
        d->tables[t].rounding_key = rng_key(seed, (uint64_t)t);
}

int description_check(const struct description *d, const char *path, struct error *err) {
    if (d->num_tables == 0 || d->num_features == 0)
        return fail(err, "%s: needs at least one table and one feature line", path);
    for (int32_t i = 0; i < d->num_features; i++) {
        const struct feature *f = &d->features[i];
        int64_t rows = d->tables[f->table].rows;
        if ((f->pooling == POOL_NONE) != (d->features[0].pooling == POOL_NONE))
            return fail(err, "%s: pooling none beside another pooling; make two batches", path);
        if (f->pooling == POOL_MAX && d->weighted)
            return fail(err, "%s: pooling max takes no per-sample weights; leave them out", path);
        if (f->padding_id >= rows)
            return fail(err, "%s: feature %d: padding %lld is no row of a table of %lld rows", path,
                        i, (long long)f->padding_id, (long long)rows);
    }
    return 0;
}

/* rule NULL: its hyper-parameters are not written. presets: those at their presets are, too. */
static void write_table(FILE *file, const struct table_shape *table, struct rule *rule,
                        bool presets) {
    const struct rule_info info = rule_info(table->rule);
    struct rule preset = rule_default(table->rule);
    fprintf(file,
            "table rows %lld dim %d rule %s weight_type %s momentum_type %s rounding %s "
            "row_state %s",
            (long long)table->rows, table->dim, info.name,
            key_word(KEY_WEIGHT_TYPE, (int)table->weight_type),
            key_word(KEY_MOMENTUM_TYPE, (int)table->momentum_type),
            key_word(KEY_ROUNDING, (int)table->rounding),
            key_word(KEY_ROW_STATE, (int)table->row_state));
    for (int k = 0; rule && k < RULE_HYPERS; k++) {
        const char *name = rule_hyper(&info, k).name;
        const float value = *rule_value(rule, k);
        if (name && (presets || value != *rule_value(&preset, k)))
            fprintf(file, " %s %.9g", name, (double)value);
    }
    fprintf(file, "\n");
}

void description_write_tables(FILE *file, const struct table_shape *tables, struct rule *rules,
                              int32_t count, int64_t steps) {
    fprintf(file, "# How the tables beside this file came to be.\nsteps %lld\n", (long long)steps);
    for (int32_t t = 0; t < count; t++)
        write_table(file, &tables[t], rules ? &rules[t] : NULL, true);
}

void description_write(FILE *file, const struct workload *w, int batch) {
    const struct batch *in = &w->batches[batch];
    fprintf(file,
            "# %s: %s\n# batch number %d\n# fingerprint %016" PRIx64
            "\nweighted %d\ngrad_type %s\nseed %llu\n",
            w->name, w->text, batch, batch_fingerprint(&w->batches[batch]),
            in->lookup_weights != NULL, key_word(KEY_GRAD_TYPE, (int)in->grad_type),
            (unsigned long long)w->seed);
    for (int32_t t = 0; t < in->num_tables; t++) {
        struct rule rule = workload_rule(w, t);
        write_table(file, &in->tables[t], &rule, false);
    }
    const int64_t bags = batch_common_bags(in);
    if (bags >= 0) fprintf(file, "bags %lld\n", (long long)bags);
    for (int32_t f = 0; f < in->num_features; f++) {
        fprintf(file, "feature table %d pooling %s padding %lld", in->features[f].table,
                key_word(KEY_POOLING, (int)in->features[f].pooling),
                (long long)in->features[f].padding_id);
        if (bags < 0) fprintf(file, " bags %lld", (long long)in->features[f].bags);
        fprintf(file, "\n");
    }
}
