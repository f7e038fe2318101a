/* SPDX-License-Identifier: MIT
 *
 * Which workload a command is about: a point of a spec, or a trace.
 */
#ifndef EMBFUSE_CLI_SOURCE_H
#define EMBFUSE_CLI_SOURCE_H

#include <stdbool.h>

#include "harness/workload/spec.h"
#include "harness/workload/workload.h"

/* By its name: *.txt, *.txt.gz, *.npy, and lists of them. */
bool source_is_trace(const char *path);

/* The point of that name; NULL stands for the only one. Otherwise NULL, and err lists the names. */
const struct spec *spec_pick(const struct spec_list *list, const char *path, const char *name,
                             struct error *err);

/* workload_generate, after refusing what does not fit into memory. */
int spec_generate(const struct spec *spec, int ring, enum grad_mode mode, struct workload *out,
                  struct error *err);

#endif
