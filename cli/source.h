/* SPDX-License-Identifier: MIT
 *
 * Finds the workload of a command in a spec.
 */
#pragma once

#include "harness/workload/spec.h"

/* Returns the point of that name; name NULL: the only one. NULL: err, which lists the names. */
const struct spec *spec_pick(const struct spec_list *list, const char *path, const char *name,
                             struct error *err);
