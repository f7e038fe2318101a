/* SPDX-License-Identifier: MIT
 *
 * Reads a batch from .npy files, and checks everything that kernels rely on.
 */
#ifndef EMBFUSE_CLI_BATCH_READ_H
#define EMBFUSE_CLI_BATCH_READ_H

#include "cli/description.h"

struct batch_files {
    const char *ids;            /* int32 or int64 [N] */
    const char *offsets;        /* int32 or int64 [F*B + 1] */
    const char *grad;           /* float32 [B][sum of dims]; pooling none: [N][dim], or flat */
    const char *lookup_weights; /* per-sample weights, float32 [N], or NULL */
};

/* Makes a workload of one batch. If finite is set, refuses NaN and infinities. */
int batch_read(const struct batch_files *files, const struct description *d, bool finite,
               struct workload *out, struct error *err);

#endif
