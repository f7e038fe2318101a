/* SPDX-License-Identifier: MIT */
#include <cuda_bf16.h> /* the emulation's */
#include <cuda_fp16.h>

#include "extras/cuda/ptx/values.h"

namespace ptx {

u16 to_f16(f32 value) {
    return __float2half_rn(value).emulated_bits;
}
f32 from_f16(u16 value) {
    return __half2float({value});
}
u16 to_bf16(f32 value) {
    return __float2bfloat16_rn(value).emulated_bits;
}

} // namespace ptx
