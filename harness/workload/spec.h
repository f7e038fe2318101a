/* SPDX-License-Identifier: MIT
 *
 * Workload specs: text files in datasets/. A spec file is a list of
 *
 *     workload NAME
 *         key values...
 *
 * blocks; # starts a comment. A key with several values is an axis (any key except length and table
 * can be one). The block stands for the cross product of its axes, and the name of each point gets
 * "/key:value" for each axis. Whole numbers may be written as 1e6.
 *
 *     batch B               bags per feature; B+C+...: features of table 0 have B, of table 1 C, and so on, and
 *                           behind the last number the first one comes again    [51200]
 *     micro_batches K       batches whose gradients are accumulated for one step: a step has K*B bags per
 *                           feature, and their gradients at once in memory    [1]
 *     tables T              number of identical tables                     [1]
 *     rows R                rows per table                                 [10000000]
 *     dim D                 floats per row                                 [64]
 *     length KIND ...       bag lengths: fixed L | uniform LO HI | negbin MEAN CV    [fixed 20]
 *     ids KIND              zipf | powerlaw | uniform | histogram-2021 | histogram-2022 | runs    [zipf]
 *     alpha A               exponent of zipf and powerlaw                  [1.05]
 *     shift Q               Mandelbrot shift of zipf                       [0]
 *     map scatter|identity  rank to id: a bijection, or rank r is row r    [scatter]
 *     reuse P               share of lookups copied from the previous batch    [0]
 *     features K            features that read each table                  [1]
 *     column_shards C       each table is cut by columns into C tables with the same ids and states of their own,
 *                           as TorchRec's column-wise sharding does: rules on whole rows are others then    [1]
 *     pooling sum|mean|none|max    max: without per-sample weights         [sum]
 *     weighted 0|1          per-sample weights                             [0]
 *     duplicates sum|mean   a row's gradients are added, or averaged: per-sample weights are divided by the
 *                           lookups of their row in the batch (PyTorch: scale_grad_by_freq)    [sum]
 *     padding ID            padding id of every feature, -1: none          [-1]
 *     id_type int32|int64                                                  [int64]
 *     rule NAME             update rule of all tables                      [rowwise_adagrad]
 *     hypers preset|varied  hyper-parameters of the rule: presets, or other values, which differ from table to
 *                           table, so that every part of the rule and of kernels/adjust.h shows    [preset]
 *     weight_type fp32|bf16|fp16|fp8                                       [fp32]
 *     momentum_type fp32|bf16    states that are averages of gradients     [fp32]
 *     grad_type fp32|bf16|fp16                                             [fp32]
 *     rounding nearest|stochastic    to types of tables narrower than fp32 [nearest]
 *     row_state apart|beside|all    states of a row: in arrays apart; those per row behind
 *                                   its weights; or all of them there      [apart]
 *     seed S                                                               [42]
 *     row_cap R             tables with more rows are cut to R             [none]
 *     table rows R dim D length KIND ...    one explicit table; repeatable; replaces tables, rows,
 *                                           dim and length
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "harness/error.h"
#include "kernels/kernel.h"

enum length_kind { LENGTH_FIXED, LENGTH_UNIFORM, LENGTH_NEGBIN };

struct length_spec {
    enum length_kind kind;
    double a, b; /* fixed: a; uniform: a..b inclusive; negbin: mean a, coefficient of variation b */
};

/* For IDS_HISTOGRAM_2021 and later kinds a plan gives the lookups of each row: harness/workload/histogram.h. */
enum ids_kind {
    IDS_ZIPF,
    IDS_POWERLAW,
    IDS_UNIFORM,
    IDS_HISTOGRAM_2021,
    IDS_HISTOGRAM_2022,
    IDS_RUNS
};

struct table_spec {
    int64_t rows;
    int64_t bags; /* of each of its features in a step, in all micro-batches */
    int32_t dim;
    int32_t column; /* its first one in the table that was cut */
    struct length_spec length;
};

enum { SPEC_NAME_MAX = 160, SPEC_TABLES_MAX = 1024, SPEC_BATCHES_MAX = 64 };
#define SPEC_BAGS_MAX 1e9 /* per feature */

/* One point: every axis has one value. */
struct spec {
    char name[SPEC_NAME_MAX];
    int num_batches;
    int64_t batches[SPEC_BATCHES_MAX]; /* bags of a feature in a micro-batch */
    int64_t micro_batches;
    int32_t num_tables; /* after the cut by columns */
    int32_t column_shards;
    struct table_spec *tables; /* [num_tables], owned */
    enum ids_kind ids;
    double alpha, shift;
    bool scatter; /* map */
    double reuse;
    int32_t features_per_table;
    enum pooling pooling;
    bool weighted;
    bool mean_of_duplicates;
    int64_t padding_id;
    enum id_type id_type;
    enum rule_kind rule;
    bool varied; /* hypers */
    enum dtype weight_type, momentum_type, grad_type;
    enum rounding rounding;
    enum row_state row_state;
    uint64_t seed;
};

struct spec_list {
    int count;
    struct spec *specs; /* [count], owned */
};

/* These replace the values of every block; NULL or empty keeps the file's. Each string is a
 * blank-separated list from a variable of make, and messages name that variable. pooling takes the
 * words sum, mean, none and max (the mode), and numbers (the pooling factor, as fixed bag length;
 * several make an axis named length). alpha skips blocks whose ids have no exponent. */
struct spec_overrides {
    const char *alpha, *dims, *rows, *batch, *pooling, *seed;
};

/* Reads a file and expands its axes. Errors name file and line. */
int spec_read(const char *path, const struct spec_overrides *over, struct spec_list *out,
              struct error *err);

/* Reads the text of a file from memory; name is for messages. */
int spec_parse(const char *name, const char *text, uint64_t size, const struct spec_overrides *over,
               struct spec_list *out, struct error *err);

void spec_list_free(struct spec_list *list);

/* The rule of table t, with presets or with the varied hyper-parameters of that table. A linear rule
 * keeps the presets of the shared ones: kernels that step per lookup refuse others. */
struct rule spec_rule(enum rule_kind kind, bool varied, int32_t t);

/* Table t as kernels see it; the batch's part of the shape is 0. */
struct table_shape spec_table(const struct spec *s, int t);

/* Adds "batch B" or "batch B+C+...". */
void spec_describe_batch(const struct spec *s, char *text, size_t size);

/* Adds " key word" for each key about duplicates, types and storage that is not at its preset. */
void spec_describe_others(const struct spec *s, char *text, size_t size);

/* Parses the name of a rule; the message lists the known ones. */
int rule_parse(const char *name, enum rule_kind *out, struct error *err);
