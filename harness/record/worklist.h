/* SPDX-License-Identifier: MIT
 *
 * What a run measures: its workloads, from a spec file or from traces, and what is measured on each. It makes a workload
 * when its turn comes.
 */
#pragma once

#include "harness/record/options.h"
#include "harness/workload/workload.h"

/* The workloads of a run, before it generates any. */
struct worklist {
    const struct options *options;
    struct spec_list specs;
    int count;
    char **traces; /* [count], or NULL: specs.specs[count] */
    char *text;    /* traces points into it */
};

int worklist_read(const struct options *o, struct worklist *out, struct error *err);
/* Workload i: its name (returned), its exponent (NaN: none), and what to measure on it. RULE=all leaves out
 * the gradient of per-sample weights that the workload does not have. */
const char *worklist_name(const struct worklist *p, int i, char name[SPEC_NAME_MAX]);
double worklist_alpha(const struct worklist *p, int i);
struct subject_list worklist_subjects(const struct worklist *p, int i);

/* True if the tables of two workloads have the same shapes and, under one rule, the same initial values. Always false
 * for traces: only reading them shows their rows. */
bool worklist_same_tables(const struct worklist *p, int i, int j);

/* Fails and gives the figure if the tables of workload i do not fit in the memory of that place.
 * Callers ask before they generate the workload, which may take minutes. */
int worklist_tables_fit(const struct worklist *p, int i, enum rule_kind rule, enum backend place,
                        struct error *err);
/* Refuses a workload that does not fit before it allocates memory. */
int worklist_make(const struct worklist *p, int i, enum rule_kind rule, struct workload *out,
                  struct error *err);
void worklist_free(struct worklist *p);
