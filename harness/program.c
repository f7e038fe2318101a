/* SPDX-License-Identifier: MIT
 *
 * Linked into every program, but not into the library: before main, the program ends if it has no kernels.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/registry.h"

__attribute__((constructor)) static void begin(void) {
    struct error err;
    if (registry_ready(&err) == 0) return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, err.text);
    exit(EXIT_USAGE);
}
