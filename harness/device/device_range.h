/* SPDX-License-Identifier: MIT
 *
 * Named ranges for profilers: ncu and nsys can look at a step alone, without fills and flushes. NVTX is a header
 * of the CUDA toolkit; without it there are no ranges.
 */
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <nvtx3/nvToolsExt.h>

static inline void range_begin(const char *name) {
    nvtxRangePushA(name);
}

static inline void range_end(void) {
    nvtxRangePop();
}

#else

static inline void range_begin(const char *name) {
    (void)name;
}

static inline void range_end(void) {}

#endif
