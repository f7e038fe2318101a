/* SPDX-License-Identifier: MIT
 *
 * Atomics and intrinsics, compared with C++.
 */
#include <cmath>
#include <cstring>

#include "emulation/selftest/device_array.h"

/* --- atomics */

struct Sums {
    int i, least, most, last;
    unsigned u, bits, swaps;
    unsigned long long big;
    float f;
    double d;
    float2 f2;
    float4 f4;
};

static __global__ void add_all(Sums *s) {
    int t = int(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&s->i, t);
    atomicAdd(&s->u, 1);
    atomicAdd(&s->big, 1ull << 33);
    atomicAdd(&s->f, 0.5f);
    atomicAdd(&s->d, 0.25);
    atomicAdd(&s->f2, make_float2(1.0f, 2.0f));
    atomicAdd(&s->f4, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
    atomicMin(&s->least, -t);
    atomicMax(&s->most, t);
    atomicOr(&s->bits, 1u << t % 32);
    atomicExch(&s->last, 7);
    unsigned seen = atomicCAS(&s->swaps, 0u, 1u), expected;
    do { /* an increment by hand */
        expected = seen;
        seen = atomicCAS(&s->swaps, expected, expected + 1);
    } while (seen != expected);
}

static void atomics() {
    Sums zero = {};
    zero.swaps = 5;
    DeviceArray<Sums> sums(1, zero);
    LAUNCH(add_all, 4, 64, 0, nullptr, sums.device);
    const Sums &s = sums.get()[0];
    CHECK(s.i == 255 * 128 && s.u == 256 && s.big == 256ull << 33);
    CHECK(s.f == 128.0f && s.d == 64.0 && s.f2.x == 256.0f && s.f2.y == 512.0f);
    CHECK(s.f4.x == 256.0f && s.f4.y == 512.0f && s.f4.z == 768.0f && s.f4.w == 1024.0f);
    CHECK(s.least == -255 && s.most == 255 && s.bits == 0xffffffffu);
    CHECK(s.last == 7 && s.swaps == 5 + 256);
}

/* --- intrinsics */

static __global__ void copy_hinted(const float4 *in, float4 *out, uint2 *pairs) {
    unsigned t = threadIdx.x;
    float4 a = __ldg(&in[t]), b = __ldcs(&in[t]), c = __ldcg(&in[t]);
    __stcs(&out[t], make_float4(a.x, b.y, c.z, a.w));
    __stcg(&pairs[t], make_uint2(__ldcv(&pairs[t].y), t));
}

static void cache_hints() {
    DeviceArray<float4> in(32, make_float4(1, 2, 3, 4)), out(32);
    DeviceArray<uint2> pairs(32, make_uint2(0, 5));
    LAUNCH(copy_hinted, 1, 32, 0, nullptr, in.device, out.device, pairs.device);
    CHECK(memcmp(out.get().data(), in.get().data(), 32 * sizeof(float4)) == 0);
    CHECK(pairs.get()[31].x == 5 && pairs.host[31].y == 31);
}

static void bits_and_types() {
    CHECK(__popc(0xf0f0u) == 8 && __popcll(~0ull) == 64 && __ffs(8) == 4 && __ffs(0) == 0);
    CHECK(__clz(1) == 31 && __clz(0) == 32);
    CHECK(__float_as_uint(1.0f) == 0x3f800000u && __uint_as_float(0x40000000u) == 2.0f);
    CHECK(min(-1, 1) == -1 && max(3u, 7u) == 7 && min(2.0f, NAN) == 2.0f);
    CHECK(alignof(float4) == 16 && alignof(float2) == 8 && alignof(int4) == 16);
    CHECK(sizeof(float3) == 12 && alignof(float3) == 4 && alignof(longlong2) == 16);
}

extern const self_case good_intrinsics[] = {
    {"atomics", atomics},
    {"loads and stores with cache hints", cache_hints},
    {"bits, minima and vector types", bits_and_types},
    {},
};
