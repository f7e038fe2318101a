/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/step.h"
#include "cli/table_files.h"
#include "harness/registry.h"

/* Rows and dim of a table without weights. */
static int shape_by_flags(const struct step_flags *f, struct table_shape *shape,
                          struct error *err) {
    struct value rows, dim;
    if (flag_required("rows", f->rows_text, err) || flag_required("dim", f->dim_text, err) ||
        value_read(KEY_ROWS, f->rows_text, (struct where){"--rows", 0}, &rows, err) ||
        value_read(KEY_DIM, f->dim_text, (struct where){"--dim", 0}, &dim, err))
        return -1;
    shape->rows = (int64_t)rows.number;
    shape->dim = (int32_t)dim.number;
    return 0;
}

/* Describes one table and one feature by flags alone. */
static int describe_by_flags(const struct step_flags *f, struct description *d, struct error *err) {
    struct path weight;
    struct table_shape shape = {0};
    const struct where pooling_flag = {"--pooling", 0}, padding_flag = {"--padding", 0};
    struct value pooling = key_preset(KEY_POOLING), padding = key_preset(KEY_PADDING);
    *d = (struct description){.weighted = f->files.lookup_weights != NULL};
    if (flag_required("ids", f->files.ids, err) ||
        flag_required("offsets", f->files.offsets, err) ||
        (f->operation != OP_FORWARD && flag_required("grad", f->files.grad, err)) ||
        flag_required("rule", f->rule, err))
        return -1;
    if (f->operation == OP_GRADIENT) {
        if (shape_by_flags(f, &shape, err)) return -1;
    } else {
        if (!f->weight && !f->tables) return flag_required("weight", f->weight, err);
        if (f->tables) weight = path_of(f->tables, "weight.npy");
        if (table_files_shape(f->weight ? f->weight : weight.text, &shape, err)) return -1;
    }
    if (rule_parse(f->rule, &shape.rule, err) ||
        (f->pooling && value_read(KEY_POOLING, f->pooling, pooling_flag, &pooling, err)) ||
        (f->padding && value_read(KEY_PADDING, f->padding, padding_flag, &padding, err)))
        return -1;
    struct feature feature = {
        .pooling = (enum pooling)pooling.number, .padding_id = (int64_t)padding.number, .bags = -1};
    if (description_add_table(d, shape, rule_default(shape.rule), err) ||
        description_add_feature(d, feature, err))
        return -1;
    if (feature.pooling == POOL_MAX && f->files.lookup_weights)
        return fail(err, "--lookup-weights: pooling max takes none; leave it out");
    return description_check(d, "--padding", err);
}

/* Sets a hyper-parameter flag in all tables whose rule has it. */
static int override_hyper(const struct step_flags *f, int h, struct description *d,
                          struct error *err) {
    char flag[40];
    snprintf(flag, sizeof flag, "--%s", hyper_name(h));
    bool read = false;
    for (int32_t t = 0; f->hyper[h] && t < d->num_tables; t++) {
        if (rule_hyper_of(d->rules[t].kind, hyper_name(h)) < 0) continue;
        if (hyper_set(&d->rules[t], hyper_name(h), f->hyper[h], (struct where){flag, 0}, err))
            return -1;
        read = true;
    }
    if (read || !f->hyper[h]) return 0;
    return fail(err, "%s: the rule %s has none; leave it out, or choose another --rule", flag,
                rule_info(d->tables[0].rule).name);
}

/* Reads the number of steps that the tables have taken, if their states are read, and the
 * hyper-parameters of the last one. */
static int read_past(const struct step_flags *f, struct step_inputs *in, struct error *err) {
    struct description *d = &in->what;
    const char *state = f->state ? f->state : f->row_state;
    if (f->zero_states || (f->weight && !state)) return 0;
    if (!f->weight)
        return table_files_past(f->tables ? f->tables : f->batch, -1, d->rules, d->num_tables,
                                &in->steps_before, err);
    char first[PATH_MAX]; /* the first file of --state, or the file of --row-state */
    snprintf(first, sizeof first, "%.*s", (int)strcspn(state, f->state ? "," : ""), state);
    return table_files_state_past(first, d->rules, &in->steps_before, err);
}

/* Flags go before the record of the tables, which goes before the description of the batch. */
static int choose_rules(const struct step_flags *f, struct step_inputs *in, struct error *err) {
    struct description *d = &in->what;
    enum rule_kind kind;
    if (f->rule && rule_parse(f->rule, &kind, err)) return -1;
    for (int32_t t = 0; f->rule && t < d->num_tables; t++) {
        d->tables[t].rule = kind;
        d->rules[t] = rule_default(kind);
    }
    if (read_past(f, in, err)) return -1;
    for (int h = 0; hyper_name(h); h++)
        if (override_hyper(f, h, d, err)) return -1;
    return 0;
}

static int describe(const struct step_flags *f, struct description *d, struct error *err) {
    const bool weight_grad = f->operation == OP_WEIGHT_GRAD;
    const char *command = f->command;
    const bool grad = f->operation != OP_FORWARD;
    bool alone = f->files.ids || f->files.offsets || f->files.grad || f->files.lookup_weights ||
                 f->pooling || f->padding || f->rows_text || f->dim_text;
    if (f->batch && alone)
        return fail(err,
                    "%s: --batch excludes --ids, --offsets, %s--lookup-weights, --pooling and "
                    "--padding",
                    command,
                    f->operation == OP_GRADIENT ? "--grad, --rows, --dim, "
                    : grad                      ? "--grad, "
                                                : "");
    if (!f->batch && !alone)
        return fail(err, "%s: give --batch, or --ids, --offsets%s", command,
                    grad ? ", --grad" : "");
    if (f->weight && f->tables)
        return fail(err, "%s: give --weight or --tables, not both", command);
    if ((f->state || f->row_state) && (!f->weight || f->zero_states))
        return fail(err, "step: --state and --row-state go with --weight, without --zero-states");
    if (!f->batch) {
        if (describe_by_flags(f, d, err)) return -1;
    } else if (description_read(path_of(f->batch, "batch").text, d, err)) {
        return -1;
    }
    if (d->no_rule && !f->rule)
        return fail(err, "%s:%d: a table without a rule; add one there, or --rule",
                    path_of(f->batch, "batch").text, d->no_rule);
    if (f->weight && d->num_tables > 1)
        return fail(err, "%s: --weight is for one table, this batch has %d; use --tables PREFIX",
                    command, d->num_tables);
    if (weight_grad && !d->weighted)
        return fail(err, "%s: the batch has no per-sample weights, and so no gradient of them; %s",
                    command,
                    f->batch ? "its description lacks `weighted 1`" : "give --lookup-weights");
    return 0;
}

static bool has_max(const struct description *d) {
    for (int32_t f = 0; f < d->num_features; f++)
        if (d->features[f].pooling == POOL_MAX) return true;
    return false;
}

static int read_batch(const struct step_flags *f, struct step_inputs *in, struct error *err) {
    const bool max = has_max(&in->what), reads = max && f->operation != OP_FORWARD;
    if (f->files.winners && !max)
        return fail(err, "--winners: no feature has pooling max; leave it out");
    if (reads && !f->batch && flag_required("winners", f->files.winners, err)) return -1;
    struct batch_files files = f->files;
    struct path ids, offsets, grad, weights, winners;
    if (f->batch) {
        ids = path_of(f->batch, "ids.npy");
        offsets = path_of(f->batch, "offsets.npy");
        grad = path_of(f->batch, "grad.npy");
        weights = path_of(f->batch, "lookup_weights.npy");
        winners = path_of(f->batch, "winners.npy");
        files = (struct batch_files){
            ids.text, offsets.text, f->operation == OP_FORWARD ? NULL : grad.text,
            in->what.weighted ? weights.text : NULL, files.winners ? files.winners : winners.text};
    }
    if (!reads) files.winners = NULL;
    return batch_read(&files, &in->what, !f->no_check, &in->workload, err);
}

/* Splits --state into one file per state of the rule. */
static int split_states(char *list, const char *paths[RULE_ELEM_STATES], struct rule_info rule,
                        struct error *err) {
    int count = 0;
    char *rest = NULL;
    for (char *p = strtok_r(list, ",", &rest); p; p = strtok_r(NULL, ",", &rest), count++)
        if (count < RULE_ELEM_STATES) paths[count] = p;
    if (count == rule.elem_states) return 0;
    return fail(err, "--state names %d files; %s has %d states per element", count, rule.name,
                rule.elem_states);
}

static int read_tables(const struct step_flags *f, struct step_inputs *in, struct error *err) {
    const struct workload *w = &in->workload;
    bool finite = !f->no_check;
    if (f->no_tables) return tables_describe(&in->tables, w->tables, w->num_tables, err);
    if (tables_create(&in->tables, w->tables, w->num_tables, 0, err)) return -1;
    if (f->operation == OP_GRADIENT) return 0;
    if (!f->weight)
        return table_files_read_all(f->tables ? f->tables : f->batch, finite, f->zero_states,
                                    in->what.rules, &in->tables, err);
    const char *paths[TABLE_ARRAYS] = {
        [TABLE_WEIGHT] = f->weight, [TABLE_ROW_STATE] = f->row_state};
    char *states = f->state ? strdup(f->state) : NULL;
    int status = f->state && !states ? fail(err, "out of memory") : 0;
    if (states)
        status = split_states(states, &paths[TABLE_ELEM], rule_info(w->tables[0].rule), err);
    if (status == 0) status = table_files_read(paths, finite, in->what.rules, &in->tables, 0, err);
    free(states);
    return status;
}

int step_inputs_read(const struct step_flags *f, struct step_inputs *out, struct error *err) {
    *out = (struct step_inputs){0};
    if (describe(f, &out->what, err) == 0 && choose_rules(f, out, err) == 0 &&
        read_batch(f, out, err) == 0 && read_tables(f, out, err) == 0)
        return 0;
    step_inputs_free(out);
    return -1;
}

void step_inputs_free(struct step_inputs *in) {
    tables_free(&in->tables);
    workload_free(&in->workload);
    description_free(&in->what);
}
