/* SPDX-License-Identifier: MIT
 *
 * The device's clocks, as NVIDIA's management library tells them where it is installed (it comes
 * with the driver). Nothing depends on it: what it does not tell is -1.
 */
#ifndef EMBFUSE_DEVICE_CLOCKS_H
#define EMBFUSE_DEVICE_CLOCKS_H

#include <stdbool.h>

struct device_clocks {
    int sm_mhz, memory_mhz;
    int limits; /* bits of NVML's clocks throttle reasons: 4 power cap, 0x20 and 0x40 heat ... */
    bool throttled; /* by heat, a power brake or hardware slowdown: not by the usual power cap */
};

struct device_clocks device_clocks(void);

#endif
