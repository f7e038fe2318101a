/* SPDX-License-Identifier: MIT
 *
 * Counts one operation of one kernel on one workload, and checks its result.
 */
#pragma once

#include <stdio.h>

#include "harness/workload/spec.h"

/* Returns an exit status, after one line to standard error if it is not 0. Writes nothing if the kernel does
 * not take the workload. */
int one_kernel(const struct spec *spec, const struct kernel *k, FILE *out);
