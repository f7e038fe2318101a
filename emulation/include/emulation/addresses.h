/* SPDX-License-Identifier: MIT
 *
 * Some instructions work on global memory only, although CUDA C has one kind of pointer for all memory.
 */
#pragma once

#include "emulation/device.h"

/* On a device the result for another address is undefined. */
inline size_t __cvta_generic_to_global(const void *p, emulation::Site site = emulation::here()) {
    return emulation::global_address(p, "__cvta_generic_to_global", site);
}

namespace emulation {

/* Stands for a prefetch in inline PTX. It may go past an allocation, but not to other memory. */
inline void prefetch_global(const void *p, Site site = here()) {
    global_address(p, "a prefetch", site);
}

} // namespace emulation
