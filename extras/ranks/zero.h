/* SPDX-License-Identifier: MIT
 *
 * Dense data parallelism with partitioned optimizers for a table, for comparison with sharded sparse tables:
 *
 *   ZERO_1  Megatron-LM's distributed optimizer (docs/user-guide/features/dist_optimizer.md): every rank has all
 *           weights and a dense gradient; states are partitioned
 *   ZERO_3  DeepSpeed's stage 3 (deepspeed/runtime/zero/stage3.py): weights and gradients are partitioned too; the
 *           table is gathered before the forward and again before the backward, and released
 *
 * The table is padded to the same number of whole rows on every rank, ceil(rows/ranks), which are
 * contiguous. (Megatron cuts shards anywhere; rules that sum over a row need whole rows.) All rows take a step, as
 * with a dense gradient. All numbers are fp32.
 *
 * Bytes per rank, of P padded elements on d ranks with states of s bytes: ZERO_1 (4+4)*P + s*P/d,
 * ZERO_3 (4+4+s)*P/d, and (4+4)*P more in the backward. Bytes sent by a rank in a step: gradients (d-1)/d*P*4; weights
 * the same, and twice that in ZERO_3. Beside it there is the merged gradient of a batch.
 *
 * Functions return 0, or -1 and fill err; all are collective. Not here: max pooling.
 */
#pragma once

#include "harness/workload/tables.h"
#include "extras/ranks/transport.h"

enum zero_stage { ZERO_1, ZERO_3 };

struct zero;

/* start: the table's initial weights and states, the same on all ranks. */
int zero_open(struct zero **out, struct transport *t, enum zero_stage stage,
              const struct table_shape *shape, const struct table *start, const struct rule *rule,
              struct error *err);
void zero_close(struct zero *z);

/* The forward of this rank's bags, a batch of this table alone. output: as kernels/forward.h. */
int zero_forward(struct zero *z, const struct batch *own, void *output, struct error *err);
/* The backward of these bags, and step number t. */
int zero_step(struct zero *z, const struct batch *own, int64_t t, struct error *err);

/* Copies weights and states of all ranks to a table of this shape. Not part of a step. */
int zero_get_table(struct zero *z, struct table *to, struct error *err);

struct zero_report {
    int64_t held, peak;          /* bytes of weights, gradients and states: now, and at most */
    int64_t padded;              /* elements with padding */
    int64_t gathers, reductions; /* collectives */
};
struct zero_report zero_report(const struct zero *z);
