/* SPDX-License-Identifier: MIT
 *
 * One block hands a value to another one that waits for it: both must be resident.
 */
#pragma once

#include "emulation/selftest/device_array.h"

enum bug { NO_BUG, FENCE_OF_BLOCK, STORE_AFTER_FENCE, FENCE_BEFORE_WAIT, ANOTHER_ADDRESS };

/* The other block waits for ready and does not know of other. */
template <bug BUG>
static __global__ void hand_over(int *value, unsigned *ready, unsigned *other, int *out) {
    if (blockIdx.x == 0) {
        if (BUG != STORE_AFTER_FENCE) *value = 7;
        if (BUG == ANOTHER_ADDRESS) atomicExch(ready, 1u);
        if (BUG == FENCE_OF_BLOCK)
            __threadfence_block();
        else
            __threadfence();
        if (BUG == STORE_AFTER_FENCE) *value = 7;
        atomicExch(BUG == ANOTHER_ADDRESS ? other : ready, 1u);
    } else {
        if (BUG == FENCE_BEFORE_WAIT) __threadfence();
        while (atomicOr(ready, 0u) == 0) {
        }
        if (BUG != FENCE_BEFORE_WAIT) __threadfence();
        *out = *value;
    }
}

template <bug BUG> static void run_hand_over() {
    DeviceArray<int> value(1), out(1);
    DeviceArray<unsigned> ready(1), other(1);
    emulation_resident(2);
    LAUNCH(hand_over<BUG>, 2, 1, 0, nullptr, value.device, ready.device, other.device, out.device);
    CHECK(out.get()[0] == 7);
    emulation_resident(0);
}
