/* SPDX-License-Identifier: MIT
 *
 * Linked into every program, but not into the library: before main, the program ends if the environment asks for
 * what this machine does not have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/measure/ceiling.h"
#include "harness/registry.h"

__attribute__((constructor)) static void begin(void) {
    struct error err;
    if (registry_ready(&err) == 0 && ceiling_ready(&err) == 0) return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, err.text);
    exit(EXIT_USAGE);
}
