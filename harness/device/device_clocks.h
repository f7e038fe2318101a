/* SPDX-License-Identifier: MIT
 *
 * The device's clocks, as NVIDIA's management library (part of the driver) reports them. Nothing
 * depends on the library: what it does not report is -1.
 */
#pragma once

#include <stdbool.h>

struct device_clocks {
    int sm_mhz, memory_mhz;
    int limits; /* bits of NVML's clocks throttle reasons: 4 power cap, 0x20 and 0x40 heat ... */
    bool throttled; /* by heat, a power brake or hardware slowdown: not by the usual power cap */
};

/* Reads the clocks of the open device. */
struct device_clocks device_clocks(void);
