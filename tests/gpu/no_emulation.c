/* SPDX-License-Identifier: MIT
 *
 * Replaces the emulation of CUDA in programs for a real device. Tests call these functions only if
 * device_facts().emulated.
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
