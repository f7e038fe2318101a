/* SPDX-License-Identifier: MIT
 *
 * Small, hostile batches by hand, and one way to run a kernel on them and judge what it did.
 *
 *     builder_begin; builder_table; builder_feature; builder_bag ...; builder_finish
 *     builder_check(kernel, way) as often as wanted; builder_free
 *
 * Every array has exactly the size that the contract gives it and comes from malloc, so that
 * AddressSanitizer sees a read past its end. Whatever no kernel may use is a NaN: gradient rows of
 * empty bags and of padding, the gaps between gradient rows, scratch before it is written.
 */
#pragma once

#include "harness/check/check.h"
#include "harness/registry.h"
#include "harness/workload/tables.h"
#include "kernels/kernel.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER 1
#endif
#endif
#ifndef WITH_SANITIZER
#define WITH_SANITIZER 0
#endif
#ifndef WITH_THREAD_SANITIZER
#define WITH_THREAD_SANITIZER 0
#endif

/* Sanitizers are slow: sizes that are large for their own sake are divided by this. */
enum { SMALLER = WITH_SANITIZER ? 16 : 1 };

/* Ways to run a kernel under which every property must hold. On the host, a number of threads; on
 * an emulated device, the order in which blocks and their threads run: 1 ascending, 2 descending,
 * others random with that seed; on a real device, one more run. */
enum { WAYS = 4 };
extern const int builder_way[WAYS];

/* How many of them this kernel is to be run in. */
int builder_ways(const struct kernel *k);
const char *builder_name_way(const struct kernel *k, int way);

/* Does the kernel run on an emulated device? */
bool builder_emulates(const struct kernel *k);

/* Do rules take turns, where a test could take all of them? With a sanitizer, which is slow; and on
 * an emulated device in a build by clang: device code is the same source there, and builds by gcc
 * take all. */
bool builder_rules_take_turns(const struct kernel *k);

/* What an emulated device needs beyond SMALLER: sizes of more than a thousand lookups are divided
 * by it. 1 for all other kernels, and for NULL. */
int builder_smaller(const struct kernel *k);

struct builder {
    uint64_t seed;
    /* Choices, to be changed between begin and finish. */
    enum id_type id_type;
    bool weighted;
    int smaller; /* see builder_smaller; 1 to begin with */
    int32_t gap; /* elements between gradient rows; 1 to begin with: few rows are aligned */
    bool exact;  /* gradients -4 .. 4 times 2^-6, weights -1, 0, 1/2, 1 or 2; otherwise real ones */
    /* After finish. The rule of a table may still be changed, through builder_rule. */
    struct batch in;
    struct rule *rules; /* [num_tables], all with rates of their own and a visible epsilon */
    int64_t step;
    bool sums_exact; /* counted: every sum of a row is exact in any order */
    struct row_index index;
    struct table_set tables; /* after builder_start, builder_run */
    struct table_set before; /* a copy of what builder_run found */
    char message[800];
    float *grad; /* in.grad before it is rounded to in.grad_type */
    /* While it is built. */
    struct table_shape *shapes;
    struct feature *features;
    int64_t *ids, *lengths;
    int64_t num_lengths;
};

void builder_begin(struct builder *b, uint64_t seed, bool exact);
int32_t builder_table(struct builder *b, int64_t rows, int32_t dim);
int32_t builder_feature(struct builder *b, int32_t table, enum pooling pooling, int64_t padding);
/* The next bag of the feature begun last. */
void builder_bag(struct builder *b, int64_t count, const int64_t *ids);
/* That many bags of 0 .. longest lookups, low rows more often than high ones. */
void builder_random_bags(struct builder *b, int64_t bags, int64_t longest);
void builder_finish(struct builder *b);
void builder_free(struct builder *b);

/* Gradient row r (bag or lookup) of a feature, to be overwritten. Then builder_recount; and, before
 * a step that is not builder_run's, builder_pack, which rounds the gradient to its type. */
float *builder_grad(const struct builder *b, int32_t feature, int64_t r);
void builder_pack(struct builder *b);
/* The winners of a bag of a feature with POOL_MAX, drawn among its lookups, to be overwritten. */
int32_t *builder_winners(const struct builder *b, int32_t feature, int64_t bag);
void builder_recount(struct builder *b);

/* Does a step without a gradient change a row whose weights and states are all this value? Some
 * rules without idle_is_identity only bound large weights, or have a decay that is none by
 * default. */
bool builder_moves(struct rule rule, float all);

/* Table t is updated by this rule from now on. */
void builder_rule(struct builder *b, int32_t t, enum rule_kind kind);
/* Whether the kernel applies the rule, and could tell it from all rules before it: by states, sums
 * over the row, and what an idle step does. Tests of properties that no formula changes run these
 * rules alone. */
bool builder_distinct(const struct kernel *k, int rule);
/* A hyper-parameter, if the rule has it. */
void builder_set(struct rule *rule, const char *name, float value);
/* Shared hyper-parameters of table t's rule, those that it has. */
void builder_adjust(struct builder *b, int32_t t, const float shared[RULE_SHARED]);
/* Rules first, first + 1, ... for tables 0, 1, ...; first alone where the kernel lacks one. */
void builder_rules(struct builder *b, const struct kernel *k, enum rule_kind first);

/* Ways to store rows, by types of weights and momenta, rounding, and place of states. */
enum { STORAGES = DTYPE_COUNT * 3 * 2 * 2 };

/* Table t is stored in way (first + t) % STORAGES, or in fp32 where the kernel wants that;
 * gradients go through their types. */
void builder_storage(struct builder *b, const struct kernel *k, int first);

/* The three parts of builder_check: fresh tables; one step; what was wrong with it, or NULL. */
void builder_start(struct builder *b);
const char *builder_run(struct builder *b, const struct kernel *k, int way);
const char *builder_judge(struct builder *b, const struct kernel *k);

/* Runs a kernel that writes an output (a forward, a gradient, that of the per-sample weights) on the
 * builder's tables, in that way (see builder_way), and judges it by its `before`; 0, or 1 or -1 with the reason in
 * text. Copies the output to `output` if that is not NULL. */
int output_run(struct builder *b, const struct kernel *k, int way, void *output, char text[400]);

/* Returns NULL if the kernel did right, otherwise what it did, in b->message. */
const char *builder_check(struct builder *b, const struct kernel *k, int way);

/* All weights and states of all tables in a row, from malloc; *bytes receives the size. */
void *builder_snapshot(const struct builder *b, size_t *bytes);
