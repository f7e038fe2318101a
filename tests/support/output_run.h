/* SPDX-License-Identifier: MIT
 *
 * Runs a kernel that writes an output (a forward, a gradient; of a step the gradient of the per-
 * sample weights) on a builder's batch, and judges it.
 */
#pragma once

#include "tests/support/batch_builder.h"

/* Runs the kernel on the builder's tables, in that way (see builder_way), and judges it by its
 * `before`; 0, or 1 or -1 with the reason in text. Copies the output to `output` if that is not
 * NULL. */
int output_run(struct builder *b, const struct kernel *k, int way, void *output, char text[400]);
