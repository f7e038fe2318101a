/* SPDX-License-Identifier: MIT
 *
 * The parts of embfuse step, forward, gradient and weight-grad: the commands and their flags (operation.c), input
 * (step_inputs.c, batch_read.c), the kernel with its backend (session.c), steps (step.c), and the outputs of the others
 * (output.c).
 */
#pragma once

#include "cli/description.h"
#include "cli/flags.h"
#include "harness/check/check.h"
#include "harness/workload/tables.h"

struct batch_files {
    const char *ids;     /* int32 or int64 [N] */
    const char *offsets; /* int32 or int64 [F*B + 1]. NULL: a bag of all ids, of one feature */
    const char *grad;    /* float32 [B][sum of dims]; pooling none: [N][dim], or flat. NULL:
                                   none, for a forward */
    const char *lookup_weights; /* per-sample weights, float32 [N], or NULL */
    const char *winners;        /* int32 or int64, as grad; NULL: none, for a forward */
};

struct step_flags {
    const char *command;
    const char *kernel, *rule, *hyper[HYPERS_MAX];
    const char *batch; /* PREFIX, or one feature: files, pooling and padding */
    /* A forward writes its winners, step and gradient read them, with a PREFIX, too. */
    struct batch_files files;
    const char *pooling, *padding;
    const char *tables;                     /* PREFIX, or: */
    const char *weight, *state, *row_state; /* one table */
    const char *out, *steps_text, *first_text, *threads_text, *no_check, *zero_states;
    const char *global_norm_text;
    const char *rows_text, *dim_text; /* the shape of a table without weights */
    bool no_tables;                   /* the kernel reads none */
    enum operation operation; /* only a step takes a rule and states, a forward takes no gradient,
                                 a gradient no weights, and a weight gradient needs per-sample weights */
    int64_t steps, first, threads;
    double global_norm; /* clips to this; 0: does not clip */
};

/* Reads a batch from .npy files, and checks everything that kernels rely on. Makes a workload of one
 * batch. If finite is set, refuses NaN and infinities. */
int batch_read(const struct batch_files *files, const struct description *d, bool finite,
               struct workload *out, struct error *err);

/* Does the same for a batch of one feature of one table, without gradients. */
int batch_read_one(const struct batch_files *files, int64_t rows, int32_t dim, enum pooling pooling,
                   int64_t padding, struct workload *out, struct error *err);

/* True if a batch that was read has no bags: offsets, which may be NULL, are [0], and its one bag stands for none. Its
 * output has no rows. */
bool batch_has_no_bags(const char *offsets, const struct batch *in);

struct step_inputs {
    struct description what;
    struct workload workload; /* it has one batch */
    struct table_set tables;
    int64_t steps_before; /* the steps that PREFIX.tables records; 0 without it */
};

/* Reads and checks all input before a kernel runs. */
int step_inputs_read(const struct step_flags *f, struct step_inputs *out, struct error *err);
void step_inputs_free(struct step_inputs *in);

/* Takes the steps, after the clip of the norm if the flags have one, writes the tables, and prints a line about it.
 * Sets f->first if the flags do not. Returns 0: fine, -1: could not run, 1: wrong, or EXIT_UNDECIDED. */
int step_apply(struct step_flags *f, const struct kernel *k, struct step_inputs *in,
               struct error *err);

/* Runs a kernel that has an output, checks and writes that, and prints a line about it. Returns 0: fine, -1: could not
 * run, 1: wrong. */
int output_apply(const struct step_flags *f, const struct kernel *k, struct step_inputs *in,
                 struct error *err);
