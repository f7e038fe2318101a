/* SPDX-License-Identifier: MIT */
#include "harness/record/worklist.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/environment.h"
#include "harness/measure/measure.h"

static const struct spec *spec_of(const struct worklist *p, int i) {
    return &p->specs.specs[i % p->specs.count];
}

const char *worklist_name(const struct worklist *p, int i, char name[SPEC_NAME_MAX]) {
    if (p->traces)
        workload_trace_name(p->traces[i / p->specs.count], spec_of(p, i), name);
    else
        snprintf(name, SPEC_NAME_MAX, "%s", spec_of(p, i)->name);
    return name;
}

/* A row of a result is known by its workload's name. */
static int require_own_names(const struct worklist *p, struct error *err) {
    char name[SPEC_NAME_MAX], other[SPEC_NAME_MAX];
    for (int i = 0; i < p->count; i++)
        for (int j = 0; j < i; j++) {
            if (strcmp(worklist_name(p, i, name), worklist_name(p, j, other)) != 0) continue;
            if (!p->traces)
                return fail(err, "%s: two workloads are called '%s'; rename one", p->options->spec,
                            name);
            return fail(err, "two workloads are called '%s': rename one of the files%s", name,
                        p->traces[i / p->specs.count] == p->traces[j / p->specs.count]
                            ? ", or leave out lists of what a trace has of its own (rows, length, "
                              "ids, alpha)"
                            : "");
        }
    return 0;
}

static int read_traces(const char *names, struct worklist *out, struct error *err) {
    out->text = strdup(names);
    out->traces = calloc(strlen(names) + 1, sizeof *out->traces);
    if (!out->text || !out->traces) return fail(err, "out of memory");
    int traces = 0;
    char *rest = NULL;
    for (char *w = strtok_r(out->text, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        out->traces[traces++] = w;
    out->count *= traces;
    return 0;
}

int worklist_read(const struct options *o, struct worklist *out, struct error *err) {
    *out = (struct worklist){.options = o};
    if (spec_read(o->spec, &o->axes, &out->specs, err)) return -1;
    out->count = out->specs.count;
    int status = *o->trace ? read_traces(o->trace, out, err) : 0;
    if (status == 0) status = require_own_names(out, err);
    if (status) worklist_free(out);
    return status;
}

double worklist_alpha(const struct worklist *p, int i) {
    enum ids_kind ids = spec_of(p, i)->ids;
    return !p->traces && (ids == IDS_ZIPF || ids == IDS_POWERLAW) ? spec_of(p, i)->alpha : NAN;
}

struct subject_list worklist_subjects(const struct worklist *p, int i) {
    const struct subject_list *all = &p->options->subjects;
    struct subject_list some = {0};
    if (all->count == 0) some.at[some.count++] = (struct subject){OP_STEP, spec_of(p, i)->rule};
    for (int k = 0; k < all->count; k++)
        if (all->count < SUBJECTS_MAX || all->at[k].operation != OP_WEIGHT_GRAD ||
            spec_of(p, i)->weighted)
            some.at[some.count++] = all->at[k];
    return some;
}

bool worklist_same_tables(const struct worklist *p, int i, int j) {
    const struct spec *a = spec_of(p, i), *b = spec_of(p, j);
    bool same = !p->traces && a->num_tables == b->num_tables && a->seed == b->seed &&
                a->weight_type == b->weight_type && a->momentum_type == b->momentum_type &&
                a->row_state == b->row_state && a->varied == b->varied;
    for (int t = 0; same && t < a->num_tables; t++) {
        const struct table_spec *x = &a->tables[t], *y = &b->tables[t];
        same = x->rows == y->rows && x->dim == y->dim && x->column == y->column;
    }
    return same;
}

static int64_t worklist_table_bytes(const struct spec *spec, enum rule_kind rule) {
    int64_t bytes = 0;
    for (int t = 0; t < spec->num_tables; t++) {
        struct table_shape shape = spec_table(spec, t);
        shape.rule = rule;
        bytes += tables_bytes(&shape, 1);
    }
    return bytes;
}

/* Bytes of the indexes of the ring's batches at their peak, during the build. */
static int64_t worklist_index_bytes(const struct worklist *p, const struct spec *spec) {
    return row_index_bytes(workload_lookups(spec, p->options->ring));
}

int worklist_tables_fit(const struct worklist *p, int i, enum rule_kind rule, enum backend place,
                        struct error *err) {
    const struct spec *spec = spec_of(p, i);
    if (p->traces) return 0; /* only reading the trace shows its rows */
    int64_t batches = workload_bytes(spec, p->options->ring),
            tables = worklist_table_bytes(spec, rule);
    int64_t free_memory = place == ON_DEVICE ? device_facts().free_memory : 0;
    if (place == ON_DEVICE && tables > free_memory)
        return fail(err, "needs %.1f GiB of device memory for tables and state, %.1f GiB are free",
                    (double)tables / (1 << 30), (double)free_memory / (1 << 30));
    if (place == ON_DEVICE) return 0;
    return memory_require(tables + batches + worklist_index_bytes(p, spec) / 2,
                          "tables, optimizer state and batches", err);
}

int worklist_make(const struct worklist *p, int i, enum rule_kind rule, struct workload *out,
                  struct error *err) {
    struct spec spec = *spec_of(p, i);
    const struct options *o = p->options;
    spec.rule = rule;
    if (!*o->axes.batch && p->traces) spec.num_batches = 0;
    if (p->traces)
        return workload_from_trace(p->traces[i / p->specs.count], &spec, o->ring, GRAD_EXACT, out,
                                   err);
    const int64_t batches = workload_bytes(&spec, o->ring);
    if (memory_require(batches + worklist_index_bytes(p, &spec), "batches", err)) return -1;
    return workload_generate(&spec, o->ring, GRAD_EXACT, out, err);
}

void worklist_free(struct worklist *p) {
    spec_list_free(&p->specs);
    free(p->traces);
    free(p->text);
    *p = (struct worklist){0};
}
