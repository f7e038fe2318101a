/* SPDX-License-Identifier: MIT
 *
 * Dense data parallelism with partitioned optimizers, for comparison with sharded sparse tables:
 *
 *   ZERO_1  Megatron-LM's distributed optimizer (docs/user-guide/features/dist_optimizer.md): every rank has all
 *           weights and a dense gradient; main weights, main gradient and states are partitioned
 *   ZERO_3  DeepSpeed's stage 3 (deepspeed/runtime/zero/stage3.py): weights and gradients are partitioned too; a
 *           table is gathered before its forward and again before its backward, and released
 *
 * Each table is a bucket: padded to the same number of whole rows on every rank, ceil(rows/ranks), which lie one
 * behind the other. (Megatron cuts shards anywhere; rules that sum over a row need whole rows.) All rows take a
 * step, as with a dense gradient. fp16 gradients are rounded after every lookup.
 *
 * Bytes per rank, of P padded elements on d ranks, weights of p bytes, gradients of g, main weights and main
 * gradients of m, states of s: ZERO_1 (p+g)*P + (m+s)*P/d, ZERO_3 (p+m+s)*P/d + (p+g)*largest.
 * Bytes sent by a rank in a step: gradients (d-1)/d*P*g; weights (d-1)/d*P*p, and twice that in ZERO_3.
 * Beside it there is work space: of a feature's lookups, and of a block of parts that are summed.
 *
 * Functions return 0, or -1 and fill err; all are collective. Not here: max pooling.
 */
#pragma once

#include "harness/workload/tables.h"
#include "extras/ranks/transport.h"

enum zero_stage { ZERO_1, ZERO_3 };

/* fp16/fp16, bf16/fp32, fp32/fp32. */
struct zero_types {
    enum dtype weight, gradient;
};

enum zero_memory {
    ZERO_WEIGHTS,
    ZERO_GRADIENT,      /* dense; of one table in ZERO_3 */
    ZERO_MAIN_WEIGHTS,  /* fp32, unless the weights are */
    ZERO_MAIN_GRADIENT, /* fp32; of ZERO_1 only if gradients are narrower */
    ZERO_STATES,
    ZERO_GATHERED, /* the weights of one table, in ZERO_3 */
    ZERO_WORK,
    ZERO_MEMORY
};

struct zero_setup {
    enum zero_stage stage;
    struct zero_types types;
    const struct table_set *tables; /* fp32, the same on all ranks: initial weights and states */
    const struct rule *rules;       /* [tables->count] */
    const char
        *offload; /* NULL, or the start of a file name: main weights, main gradients and states are
                            mapped from an unlinked file for each rank and array */
};

struct zero;

int zero_open(struct zero **out, struct transport *t, const struct zero_setup *setup,
              struct error *err);
void zero_close(struct zero *z);

/* The forward of bags begin .. end-1 of each feature, by a forward kernel. output: as kernels/forward.h. */
int zero_forward(struct zero *z, const struct batch *in, int64_t begin, int64_t end, void *output,
                 struct error *err);
/* The backward of these bags, and step number t. */
int zero_step(struct zero *z, const struct batch *in, int64_t begin, int64_t end, int64_t t,
              struct error *err);

/* Copies main weights and states of all ranks to tables of the same shapes. Not part of a step. */
int zero_get_tables(struct zero *z, struct table_set *to, struct error *err);

struct zero_report {
    int64_t held[ZERO_MEMORY], most[ZERO_MEMORY]; /* bytes that are allocated, offloaded ones too */
    int64_t peak;      /* the most bytes at one time in memory, without work space */
    int64_t offloaded; /* bytes in files */
    int64_t elements, padded, largest; /* of all tables; with padding; of the largest, padded */
    int64_t gathers, reductions;       /* collectives, one for each table */
};
struct zero_report zero_report(const struct zero *z);
