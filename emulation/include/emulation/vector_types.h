/* SPDX-License-Identifier: MIT
 *
 * CUDA's vector types with CUDA's alignment: a float4 is one aligned access of 16 bytes.
 */
#pragma once

#define EMULATED_VECTOR_1(name, type, align)                                                       \
    struct alignas(align) name##1 {                                                                \
        type x;                                                                                    \
    };                                                                                             \
    constexpr name##1 make_##name##1(type x) {                                                     \
        return {x};                                                                                \
    }
#define EMULATED_VECTOR_2(name, type, align)                                                       \
    struct alignas(align) name##2 {                                                                \
        type x, y;                                                                                 \
    };                                                                                             \
    constexpr name##2 make_##name##2(type x, type y) {                                             \
        return {x, y};                                                                             \
    }
#define EMULATED_VECTOR_3(name, type, align)                                                       \
    struct alignas(align) name##3 {                                                                \
        type x, y, z;                                                                              \
    };                                                                                             \
    constexpr name##3 make_##name##3(type x, type y, type z) {                                     \
        return {x, y, z};                                                                          \
    }
#define EMULATED_VECTOR_4(name, type, align)                                                       \
    struct alignas(align) name##4 {                                                                \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    constexpr name##4 make_##name##4(type x, type y, type z, type w) {                             \
        return {x, y, z, w};                                                                       \
    }
/* align2 and align4 are for two and four members; one and three have the member's alignment. */
#define EMULATED_VECTORS(name, type, align2, align4)                                               \
    EMULATED_VECTOR_1(name, type, alignof(type))                                                   \
    EMULATED_VECTOR_2(name, type, align2)                                                          \
    EMULATED_VECTOR_3(name, type, alignof(type))                                                   \
    EMULATED_VECTOR_4(name, type, align4)

EMULATED_VECTORS(char, signed char, 2, 4)
EMULATED_VECTORS(uchar, unsigned char, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(ushort, unsigned short, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(uint, unsigned int, 8, 16)
EMULATED_VECTORS(long, long, 16, 16)
EMULATED_VECTORS(ulong, unsigned long, 16, 16)
EMULATED_VECTORS(longlong, long long, 16, 16)
EMULATED_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(double, double, 16, 16)

#undef EMULATED_VECTORS
#undef EMULATED_VECTOR_1
#undef EMULATED_VECTOR_2
#undef EMULATED_VECTOR_3
#undef EMULATED_VECTOR_4

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const {
        return {x, y, z};
    }
};
