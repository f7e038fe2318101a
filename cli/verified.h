/* SPDX-License-Identifier: MIT
 *
 * How a device kernel was verified. Its tests run on the emulation of CUDA. It counts as verified
 * on a GPU only if reports/results/gpu-verified.txt has a record of it.
 */
#ifndef EMBFUSE_CLI_VERIFIED_H
#define EMBFUSE_CLI_VERIFIED_H

#include "kernels/kernel.h"

enum { VERIFIED_MAX = 160 };

/* "GPU-verified (DEVICE, DATE)" of the latest record, "emulation-verified", or "" on the host. */
void verified_text(const struct kernel *k, char text[VERIFIED_MAX]);

#endif
