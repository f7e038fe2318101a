/* SPDX-License-Identifier: MIT
 *
 * The bench program's command line.
 */
#pragma once

#include <regex.h>
#include <stdbool.h>

#include "harness/error.h"
#include "harness/registry.h"
#include "harness/workload/spec.h"

/* One thing to measure on a workload: a step by a rule, or another operation, on tables without
 * states. */
struct subject {
    enum operation operation;
    enum rule_kind rule; /* the rule of a step; otherwise sgd */
};
enum { SUBJECTS_MAX = RULE_COUNT + OPERATIONS - 1 };
struct subject_list {
    int count;
    struct subject at[SUBJECTS_MAX];
};

/* "adam", or "forward": its name in filters, results and plots. */
const char *subject_name(struct subject s);

struct options {
    const char *filter; /* extended regular expression on WORKLOAD/RULE/KERNEL/MODE, "": all */
    const char *spec;   /* spec file */
    const char *trace;  /* blank-separated traces, "": none */
    const char *out;    /* folder of the result */
    struct spec_overrides axes;
    const char *rule, *mode, *place; /* the texts as given */
    regex_t pattern;                 /* the compiled filter */
    struct subject_list subjects;    /* none: a step by the rule of the spec */
    unsigned modes;                  /* bits 1 << enum cache_mode */
    unsigned places;                 /* bits 1 << enum backend */
    int threads;
    int reps;
    bool fewer;    /* samples of slow kernels: REPS was not given */
    int visits;    /* over which they are spread; reps at most */
    int seconds;   /* of the run, in which more visits begin; 0: none do */
    int precision; /* percent within which ratios are to be known then */
    int ring;      /* batches */
    int queue;     /* minutes to wait for another bench on this machine */
    bool smoke;    /* a check: its times are no measurement */
};
/* 0: parsed; 1: it printed help or the version, as asked; -1: err. */
int options_parse(int argc, char **argv, struct options *out, struct error *err);

/* Calls add(ctx, key, value) for every variable, as "emb_var_NAME". */
void options_describe(const struct options *o,
                      void (*add)(void *ctx, const char *key, const char *value), void *ctx);
