/* SPDX-License-Identifier: MIT
 *
 * A batch from .npy files, with everything checked that kernels take for granted.
 */
#ifndef EMBFUSE_CLI_BATCH_READ_H
#define EMBFUSE_CLI_BATCH_READ_H

#include "cli/description.h"

struct batch_files {
    const char *ids;            /* int32 or int64 [N] */
    const char *offsets;        /* int32 or int64 [F*B + 1] */
    const char *grad;           /* float32 [B][sum of dims]; of sequences [N][dim], or flat */
    const char *lookup_weights; /* float32 [N], or NULL */
};

/* Makes a workload of one batch; with finite, NaN and infinities are refused. */
int batch_read(const struct batch_files *files, const struct description *d, bool finite,
               struct workload *out, struct error *err);

#endif
