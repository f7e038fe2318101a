/* SPDX-License-Identifier: MIT
 *
 * Finds the workload of a command in a spec.
 */
#ifndef EMBFUSE_CLI_SOURCE_H
#define EMBFUSE_CLI_SOURCE_H

#include "harness/workload/spec.h"
#include "harness/workload/workload.h"

/* Returns the point of that name; name NULL: the only one. NULL: err, which lists the names. */
const struct spec *spec_pick(const struct spec_list *list, const char *path, const char *name,
                             struct error *err);

/* Like workload_generate, but refuses what does not fit into memory. */
int spec_generate(const struct spec *spec, int ring, enum grad_mode mode, struct workload *out,
                  struct error *err);

#endif
