/* SPDX-License-Identifier: MIT
 *
 * The reference: slow, serial, obvious and in double precision. It shares no arithmetic code with
 * any kernel or rule; it takes shapes, enums, names of hyper-parameters and the functions of
 * kernels/rng.h from the common headers. It states every rule and every element type again. With
 * each value it carries a bound on how far a correct single-precision evaluation can be from it
 * (running error analysis: Wilkinson 1963; Higham, Accuracy and Stability of Numerical Algorithms,
 * 2nd ed., 3.3), so no tolerance has to be chosen.
 */
#pragma once

#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* An exact value, and a bound on the error of its single-precision evaluation. The bound is
 * infinite if the evaluation may overflow, divide by 0 or take the root of a negative number. */
struct num {
    double value;
    double error;
};

/* One row: its part of each array of the table. The caller owns the arrays. */
struct oracle_row {
    union {
        struct num *array[TABLE_ARRAYS];
        struct {
            struct num *weight, *row, *elem[RULE_ELEM_STATES];
        };
    };
};

/* grad[dim]: the summed gradient of `count` lookups of one row. With exact, the sum is exact in
 * single precision in any order, and its bound is 0. Otherwise the bound is (count + 3) u sum|g|,
 * plus what each lookup's products lose if they are subnormal. */
void oracle_sum(const struct batch *in, const struct row_lookup *lookups, int64_t count, bool exact,
                int32_t dim, struct num *grad);

/* Sets the bound of sums of 0 to 0 where every order of the lookups gives 0: rules take another branch there. */
void oracle_cancel(const struct batch *in, const struct row_lookup *lookups, int64_t count,
                   int32_t dim, struct num *grad);

/* Applies the rule at step t (>= 1) once, in place. Also adjusts grad (kernels/adjust.h). */
void oracle_update(const struct rule *rule, int64_t t, int32_t dim, struct num *grad,
                   struct oracle_row *row);

/* False if a step with a zero gradient changes a row's weights or states. */
bool oracle_keeps_idle(const struct rule *rule);

/* The row as tables store it: a type narrower than fp32 rounds an element once more. The error is NaN if the
 * element may be too large for its type. */
void oracle_store(const struct table_shape *t, struct oracle_row *row);

/* Rounds row `row` of a table, in floats, to exactly what the table stores of it in that step. */
void oracle_round(const struct table_shape *t, int64_t step, int64_t row,
                  const struct row_memory *m);

/* One value rounded to that type. word: random, for ROUND_STOCHASTIC. */
float oracle_narrow(enum dtype type, enum rounding how, uint32_t word, float value);

/* A bound on the error of this rounding for finite values up to that size. */
double oracle_rounding(enum dtype type, enum rounding how, double size);

/* Element i of an array of that type. */
float oracle_element(enum dtype type, const void *array, int64_t i);

/* oracle_update() for a linear rule, w -= lr*g, if each of `count` lookups takes its own step on
 * the weight. grad comes from oracle_sum() without exact. Its bound, (count + 3) u sum|g|, covers
 * the roundings of the products. It also gives an upper bound of sum|g|, and so of every
 * intermediate weight in any order of the lookups. Each lookup rounds such a weight once. CUDA's
 * atomicAdd on float in global memory also flushes subnormals to zero (PTX ISA, atom). */
void oracle_update_per_lookup(const struct rule *rule, int64_t count, int32_t dim,
                              const struct num *grad, struct oracle_row *row);
