/* SPDX-License-Identifier: MIT
 *
 * The reference: slow, serial, obvious, in double precision, and sharing no code with any kernel.
 * It states every rule again and carries, beside each value, a bound on how far a correct
 * single-precision evaluation can be from it (running error analysis: Wilkinson 1963; Higham,
 * Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.3). There is no tolerance to choose.
 */
#ifndef EMBFUSE_ORACLE_H
#define EMBFUSE_ORACLE_H

#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* The exact value of a quantity and a bound on the error of its single-precision evaluation: infinite
 * where the evaluation may overflow, divide by 0 or take the root of a negative number. */
struct num {
    double value;
    double error;
};

/* One row: its part of each array of the table. Arrays belong to the caller. */
struct oracle_row {
    union {
        struct num *array[TABLE_ARRAYS];
        struct {
            struct num *weight, *row, *elem[RULE_ELEM_STATES];
        };
    };
};

/* grad[dim]: the summed gradient of the `count` lookups (all of one row). With exact, the sum is
 * exact in single precision in any order and its bound is 0; otherwise it is (count + 3) u sum|g|,
 * and what the products of each lookup lose where floats are subnormal. */
void oracle_sum(const struct batch *in, const struct row_lookup *lookups, int64_t count, bool exact,
                int32_t dim, struct num *grad);

/* Applies the rule at step t (>= 1) once, in place. */
void oracle_update(const struct rule *rule, int64_t t, int32_t dim, const struct num *grad,
                   struct oracle_row *row);

/* Weights as they are stored: rounded once more, where their type is narrower than fp32. */
void oracle_store(enum dtype type, int32_t dim, struct num *weight);

/* oracle_update() for a linear rule, w -= lr*g, where every one of `count` lookups took its own step on the
 * weight. grad is that
 * of oracle_sum without exact: its (count + 3) u sum|g| hold the roundings of the products, and
 * give an upper bound of sum|g|, which bounds every intermediate weight in any order of the
 * lookups. Each adds one rounding of such a weight; and CUDA's atomicAdd on float in global memory
 * flushes subnormals to zero (PTX ISA, atom). */
void oracle_update_per_lookup(const struct rule *rule, int64_t count, int32_t dim,
                              const struct num *grad, struct oracle_row *row);

#endif
