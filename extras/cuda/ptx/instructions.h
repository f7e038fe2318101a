/* SPDX-License-Identifier: MIT
 *
 * The C++ that translate.py writes includes this: values, memory, barriers and collectives, and the
 * description of kernels by which launches find them.
 */
#pragma once

#include <cuda_runtime.h> /* the emulation's */

#include "extras/cuda/ptx/values.h"

namespace ptx {

/* --- memory */

/* Local memory of a thread, and the parameters of its kernel: a list from the innermost function. */
struct Frame {
    char *begin;
    size_t bytes;
    bool constant;
    const Frame *outer;
};
inline char *poisoned(char *begin, size_t bytes) {
    return static_cast<char *>(memset(begin, 0xff, bytes));
}

/* Each judges an access, tells the observer, and returns where the bytes are. */
char *global(u64 address, u32 bytes, const Instruction &at);
char *shared(u32 address, u32 bytes, const Instruction &at);
char *local(const Frame *frame, u64 address, u32 bytes, const Instruction &at);
char *generic(const Frame *frame, u64 address, u32 bytes, const Instruction &at);
void in_parameters(const Frame *frame, const char *p, const Instruction &at);
void prefetch(u64 address, u32 bytes, const Instruction &at);

/* Generic addresses of shared and of local memory have marks that no address of the host has. */
constexpr u64 SHARED_MARK = u64(1) << 62, LOCAL_MARK = u64(1) << 61;
inline u64 to_generic_shared(u64 address) {
    return address | SHARED_MARK;
}
inline u64 from_generic_shared(u64 address) {
    return address & ~SHARED_MARK;
}
inline u64 to_generic_local(u64 address) {
    return address | LOCAL_MARK;
}
inline u64 from_generic_local(u64 address) {
    return address & ~LOCAL_MARK;
}

template <class T> struct Alias { typedef T type __attribute__((may_alias)); };
template <class T> inline __attribute__((always_inline)) T get(const char *p) {
    return *reinterpret_cast<const typename Alias<T>::type *>(p);
}
template <class T> inline __attribute__((always_inline)) void put(char *p, T value) {
    *reinterpret_cast<typename Alias<T>::type *>(p) = value;
}

void copy(char *to, const char *from, u32 bytes, u32 present); /* the rest becomes 0 */

/* One thread runs at a time and switches at no atomic: an atomic is its operation. */
template <class T> T exchanged(char *p, T value) {
    T old = get<T>(p);
    put<T>(p, value);
    return old;
}
template <class T> T atom_add(char *p, T v) {
    return exchanged<T>(p, T(get<T>(p) + v));
}
template <class T> T atom_min(char *p, T v) {
    return exchanged<T>(p, get<T>(p) < v ? get<T>(p) : v);
}
template <class T> T atom_max(char *p, T v) {
    return exchanged<T>(p, get<T>(p) > v ? get<T>(p) : v);
}
template <class T> T atom_and(char *p, T v) {
    return exchanged<T>(p, T(get<T>(p) & v));
}
template <class T> T atom_or(char *p, T v) {
    return exchanged<T>(p, T(get<T>(p) | v));
}
template <class T> T atom_exch(char *p, T v) {
    return exchanged<T>(p, v);
}
template <class T> T atom_cas(char *p, T expected, T v) {
    T old = get<T>(p);
    if (old == expected) put<T>(p, v);
    return old;
}

/* --- threads */
u32 lane();
int block_barrier(emulation::BarrierOp op, bool value, const Instruction &at);
u64 warp(emulation::WarpOp op, u32 mask, u64 value, const Instruction &at);
u32 shfl_idx(u32 value, u32 source, u32 c, u32 mask, const Instruction &at, bool &in);
u32 shfl_up(u32 value, u32 delta, u32 c, u32 mask, const Instruction &at, bool &in);
u32 shfl_down(u32 value, u32 delta, u32 c, u32 mask, const Instruction &at, bool &in);
u32 shfl_bfly(u32 value, u32 flip, u32 c, u32 mask, const Instruction &at, bool &in);
void fence(const Instruction &at);
[[noreturn]] void trap(const Instruction &at);

/* --- kernels */
struct Parameter {
    u32 offset, bytes;
};
struct Array { /* in shared memory */
    u32 slot, bytes, align;
    bool dynamic; /* the launch says its size */
};
struct Translated {
    const char *symbol;
    void (*body)(char *parameters);
    const Parameter *parameters;
    int parameter_count;
    u32 parameter_bytes;
    const Array *arrays;
    int array_count, arch;
};

/* Which kernel a stub of the host launches. */
void add(const void *stub, const char *symbol, const Translated *all, int count);

} // namespace ptx
