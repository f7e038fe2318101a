/* SPDX-License-Identifier: MIT
 *
 * Stands in for the emulation of CUDA in programs that run on a real device, which offers none of
 * this: tests ask only where device_facts().emulated.
 */
#include <stdlib.h>

#include "emulation/emulation.h"

void emulation_schedule(int order, uint64_t seed) {
    (void)order, (void)seed;
    abort();
}

void emulation_capacity(size_t bytes) {
    (void)bytes;
    abort();
}

void emulation_fail_launch(const char *kernel_substring) {
    (void)kernel_substring;
    abort();
}
