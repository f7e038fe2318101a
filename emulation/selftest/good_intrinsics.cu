/* SPDX-License-Identifier: MIT
 *
 * Atomics, intrinsics and the small float types, compared with C++.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>

#include "emulation/selftest/device_array.h"

/* --- atomics */

struct Sums {
    int i, least, most, last;
    unsigned u, bits, common, swaps;
    unsigned long long big;
    float f;
    double d;
    float2 f2;
    float4 f4;
};

static __global__ void add_all(Sums *s) {
    int t = int(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&s->i, t);
    atomicAdd(&s->u, 2);
    atomicSub(&s->u, 1u);
    atomicAdd(&s->big, 1ull << 33);
    atomicAdd(&s->f, 0.5f);
    atomicAdd(&s->d, 0.25);
    atomicAdd(&s->f2, make_float2(1.0f, 2.0f));
    atomicAdd(&s->f4, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
    atomicMin(&s->least, -t);
    atomicMax(&s->most, t);
    atomicOr(&s->bits, 1u << t % 32);
    atomicAnd(&s->common, ~(1u << t % 16));
    atomicExch(&s->last, 7);
    unsigned seen = atomicCAS(&s->swaps, 0u, 1u), expected;
    do { /* an increment by hand */
        expected = seen;
        seen = atomicCAS(&s->swaps, expected, expected + 1);
    } while (seen != expected);
}

static void atomics() {
    Sums zero = {};
    zero.common = 0xffffffffu;
    zero.swaps = 5;
    DeviceArray<Sums> sums(1, zero);
    LAUNCH(add_all, 4, 64, 0, nullptr, sums.device);
    const Sums &s = sums.get()[0];
    CHECK(s.i == 255 * 128 && s.u == 256 && s.big == 256ull << 33);
    CHECK(s.f == 128.0f && s.d == 64.0 && s.f2.x == 256.0f && s.f2.y == 512.0f);
    CHECK(s.f4.x == 256.0f && s.f4.y == 512.0f && s.f4.z == 768.0f && s.f4.w == 1024.0f);
    CHECK(s.least == -255 && s.most == 255 && s.bits == 0xffffffffu && s.common == 0xffff0000u);
    CHECK(s.last == 7 && s.swaps == 5 + 256);
}

/* --- intrinsics */

static __global__ void copy_hinted(const float4 *in, float4 *out, uint2 *pairs) {
    unsigned t = threadIdx.x;
    float4 a = __ldg(&in[t]), b = __ldcs(&in[t]), c = __ldcg(&in[t]), d = __ldlu(&in[t]);
    __stcs(&out[t], make_float4(a.x, b.y, c.z, d.w));
    __stcg(&pairs[t], make_uint2(__ldca(&pairs[t].y), t));
    __syncwarp();
    if (t == 0) __stwt(&pairs[0].x, 9);
}

static void cache_hints() {
    DeviceArray<float4> in(32, make_float4(1, 2, 3, 4)), out(32);
    DeviceArray<uint2> pairs(32, make_uint2(0, 5));
    LAUNCH(copy_hinted, 1, 32, 0, nullptr, in.device, out.device, pairs.device);
    CHECK(memcmp(out.get().data(), in.get().data(), 32 * sizeof(float4)) == 0);
    CHECK(pairs.get()[0].x == 9 && pairs.host[31].x == 5 && pairs.host[31].y == 31);
}

static void bits_and_arithmetic() {
    CHECK(__popc(0xf0f0u) == 8 && __popcll(~0ull) == 64 && __ffs(8) == 4 && __ffs(0) == 0);
    CHECK(__ffsll(1ll << 40) == 41 && __clz(1) == 31 && __clz(0) == 32 && __clzll(0) == 64);
    CHECK(__brev(1u) == 0x80000000u && __umulhi(1u << 31, 6u) == 3);
    CHECK(__umul64hi(1ull << 63, 6) == 3);
    CHECK(__float_as_uint(1.0f) == 0x3f800000u && __uint_as_float(0x40000000u) == 2.0f);
    CHECK(__float_as_int(-0.0f) == INT32_MIN && __int_as_float(0x3f800000) == 1.0f);
    CHECK(__saturatef(-1.0f) == 0.0f && __saturatef(NAN) == 0.0f && __saturatef(2.0f) == 1.0f);
    CHECK(__fmaf_rn(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -1.0f) == 0x1p-11f + 0x1p-24f);
    CHECK(__fdiv_rn(1.0f, 4.0f) == 0.25f && __fsqrt_rn(9.0f) == 3.0f && rsqrtf(4.0f) == 0.5f);
    CHECK(min(-1, 1) == -1 && max(3u, 7u) == 7 && min(2.0f, NAN) == 2.0f);
    CHECK(alignof(float4) == 16 && alignof(float2) == 8 && alignof(int4) == 16);
    CHECK(sizeof(float3) == 12 && alignof(float3) == 4 && alignof(longlong2) == 16);
}

/* --- bf16 and fp16: conversion to float and back keeps every code, and the middle of two
 * neighbours goes to the even one. */

template <class Small, class Widen, class Narrow, class Bits>
static void check_codes(uint16_t infinity, Widen widen, Narrow narrow, Bits bits_of) {
    for (uint32_t code = 0; code < 65536; code++) {
        uint16_t bits = uint16_t(code), magnitude = bits & 0x7fffu;
        Small small;
        static_assert(sizeof small == sizeof bits);
        memcpy(&small, &bits, sizeof small);
        float wide = widen(small);
        CHECK(std::isnan(wide) == (magnitude > infinity));
        CHECK(bits_of(narrow(wide)) == (std::isnan(wide) ? 0x7fff : bits));
        if (magnitude >= infinity) continue;
        CHECK(std::signbit(wide) == (code >= 0x8000));
        uint16_t above = uint16_t(bits + 1);
        Small next;
        memcpy(&next, &above, sizeof next);
        if (magnitude + 1 == infinity) continue;
        float middle = float(0.5 * (double(wide) + double(widen(next))));
        CHECK(bits_of(narrow(middle)) == (bits % 2 ? above : bits));
        CHECK(bits_of(narrow(std::nextafter(middle, wide))) == bits);
        CHECK(bits_of(narrow(std::nextafter(middle, widen(next)))) == above);
    }
}

static void bfloat16() {
    check_codes<__nv_bfloat16>(0x7f80, __bfloat162float, __float2bfloat16_rn, __bfloat16_as_ushort);
    CHECK(__bfloat16_as_ushort(__float2bfloat16_rn(3.4e38f)) == 0x7f80);
    CHECK(__bfloat162float(__ushort_as_bfloat16(0x3fc0)) == 1.5f);
}

static void half_precision() {
    check_codes<__half>(0x7c00, __half2float, __float2half_rn, __half_as_ushort);
    CHECK(__half_as_ushort(__float2half_rn(65520.0f)) == 0x7c00);
    CHECK(__half_as_ushort(__float2half_rn(65519.0f)) == 0x7bff);
    CHECK(__half_as_ushort(__float2half_rn(-1e-9f)) == 0x8000);
    CHECK(__half2float(__ushort_as_half(0x3e00)) == 1.5f);
}

extern const self_case good_intrinsics[] = {
    {"atomics", atomics},
    {"loads and stores with cache hints", cache_hints},
    {"bits and float arithmetic", bits_and_arithmetic},
    {"bf16 conversions", bfloat16},
    {"fp16 conversions", half_precision},
    {},
};
