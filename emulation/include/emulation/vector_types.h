/* SPDX-License-Identifier: MIT
 *
 * CUDA's vector types with CUDA's alignment: a float4 is one aligned access of 16 bytes.
 */
#pragma once

#define EMULATED_VECTORS(name, type, align2, align4)                                               \
    struct alignas(align2) name##2 {                                                               \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3 {                                                                               \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct alignas(align4) name##4 {                                                               \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    constexpr name##2 make_##name##2(type x, type y) {                                             \
        return {x, y};                                                                             \
    }                                                                                              \
    constexpr name##3 make_##name##3(type x, type y, type z) {                                     \
        return {x, y, z};                                                                          \
    }                                                                                              \
    constexpr name##4 make_##name##4(type x, type y, type z, type w) {                             \
        return {x, y, z, w};                                                                       \
    }

EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(uint, unsigned int, 8, 16)
EMULATED_VECTORS(longlong, long long, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)

#undef EMULATED_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const {
        return {x, y, z};
    }
};
