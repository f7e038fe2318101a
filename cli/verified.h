/* SPDX-License-Identifier: MIT
 *
 * How far a kernel of a device is known to be right. Its tests run on the emulation of CUDA; that it
 * is right on a GPU too is said only where reports/results/gpu-verified.txt has a record of it.
 */
#ifndef EMBFUSE_CLI_VERIFIED_H
#define EMBFUSE_CLI_VERIFIED_H

#include "kernels/kernel.h"

enum { VERIFIED_MAX = 160 };

/* "GPU-verified (DEVICE, DATE)" of the latest record, "emulation-verified", or "" for a kernel of the
 * host. */
void verified_text(const struct kernel *k, char text[VERIFIED_MAX]);

#endif
