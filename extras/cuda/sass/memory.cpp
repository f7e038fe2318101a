/* SPDX-License-Identifier: MIT
 *
 * Operands, and what they address: registers, constants, global, shared and local memory, atomics.
 */
#include <cstdio>
#include <cstring>

#include "extras/cuda/sass/machine.h"
#include "kernels/dtype.h"

namespace sass {

static const uint8_t *constant(const warp &w, const operand &o, int lane, size_t bytes) {
    const std::vector<uint8_t> &c = w.machine->constants;
    const uint64_t at = (uint64_t)(o.value + (int32_t)w.reg[o.reg][lane]);
    if (at + bytes > c.size()) throw std::string("a constant past the arguments");
    return &c[at];
}

static void modify(uint8_t flags, uint32_t *x) {
    for (int l = 0; l < LANES; l++) {
        if (flags & LOW_HALF) x[l] = float_bits(dtype_widen(FP16, x[l] & 0xffff));
        if (flags & HIGH_HALF) x[l] = float_bits(dtype_widen(FP16, x[l] >> 16));
        if (flags & MAGNITUDE) x[l] &= 0x7fffffff;
        if (flags & SIGN) x[l] ^= 0x80000000;
        if (flags & NOT) x[l] = ~x[l];
        if (flags & MINUS) x[l] = -x[l];
    }
}

const uint32_t *values(const warp &w, const operand &o, uint32_t *space) {
    const uint32_t *reg = w.reg[o.kind == REGISTER ? o.reg : (int)RZ];
    if (o.kind == NONE || (o.kind == REGISTER && !(o.flags & ~PAIR))) return reg;
    for (int l = 0; l < LANES; l++)
        if (o.kind == CONSTANT)
            memcpy(&space[l], constant(w, o, l, 4), 4);
        else
            space[l] = o.kind == IMMEDIATE ? (uint32_t)o.value : reg[l];
    modify(o.flags, space);
    return space;
}

void wide_values(const warp &w, const operand &o, uint64_t *to) {
    const bool zero = o.reg == RZ || o.reg == URZ;
    for (int l = 0; l < LANES; l++) {
        if (o.kind == CONSTANT)
            memcpy(&to[l], constant(w, o, l, 8), 8);
        else if (o.kind == IMMEDIATE)
            to[l] = (uint64_t)o.value;
        else if (o.kind == NONE || zero)
            to[l] = 0;
        else
            to[l] = w.reg[o.reg][l] | (uint64_t)w.reg[o.reg + 1][l] << 32;
        if (o.flags & NOT) to[l] = ~to[l];
        if (o.flags & MINUS) to[l] = -to[l];
    }
}

/* A uniform register takes the value of the first lane. */
void put(warp &w, const operand &to, const uint32_t *values, uint32_t lanes) {
    if (to.kind != REGISTER || to.reg == RZ || to.reg == URZ || !lanes) return;
    uint32_t *reg = w.reg[to.reg];
    if (to.reg >= UNIFORM) {
        const uint32_t one = values[__builtin_ctz(lanes)];
        for (int l = 0; l < LANES; l++) reg[l] = one;
    } else if (lanes == 0xffffffff) {
        memcpy(reg, values, sizeof w.reg[0]);
    } else {
        for (int l = 0; l < LANES; l++) reg[l] = lanes >> l & 1 ? values[l] : reg[l];
    }
}

void put_predicate(warp &w, int k, uint32_t value, uint32_t lanes) {
    if (k % UNIFORM_PREDICATE == PT || !lanes) return;
    if (k >= UNIFORM_PREDICATE)
        w.predicate[k] = value >> __builtin_ctz(lanes) & 1 ? 0xffffffff : 0;
    else
        w.predicate[k] = (w.predicate[k] & ~lanes) | (value & lanes);
}

/* --- memory */

static std::string hex(uint64_t x) {
    char text[32];
    snprintf(text, sizeof text, "%#llx", (unsigned long long)x);
    return text;
}

static uint8_t *global(machine &m, uint64_t at, size_t bytes) {
    for (size_t n = 0; n < m.regions.size(); n++) {
        const size_t k = (m.last_region + n) % m.regions.size();
        const region &r = m.regions[k];
        if (at < r.base || at - r.base + bytes > r.bytes) continue;
        m.last_region = k;
        return r.at + (at - r.base);
    }
    throw "no memory at " + hex(at);
}

static uint8_t *memory(warp &w, uint32_t space, uint64_t at, int lane, size_t bytes) {
    if (at % bytes) throw "misaligned address " + hex(at);
    if (space == GENERIC && at >> 32 == SHARED_WINDOW) space = SHARED;
    if (space == LOCAL) {
        at &= 0xffffffff;
        if (at + bytes > LOCAL_BYTES) throw "no local memory at " + hex(at);
        return w.local[lane] + at;
    }
    if (space != SHARED) return global(*w.machine, at, bytes);
    at &= 0xffffff; /* above it the number of the block in its cluster, which is 0 */
    if (at + bytes > w.machine->shared.size()) throw "no shared memory at " + hex(at);
    return &w.machine->shared[at];
}

static uint64_t address(const warp &w, const operand &o, uint32_t space, int lane) {
    const uint32_t low = w.reg[o.reg][lane];
    const bool zero = o.reg == RZ || o.reg == URZ, wide = space == GLOBAL || space == GENERIC;
    uint64_t at = (uint64_t)o.value;
    if (o.flags & PAIR && !zero)
        at += low | (uint64_t)w.reg[o.reg + 1][lane] << 32;
    else
        at += (wide && !(o.flags & UNSIGNED) ? (uint64_t)(int32_t)low : low) * o.scale;
    if (o.second != URZ) {
        at += w.reg[o.second][lane];
        if (wide) at += (uint64_t)w.reg[o.second + 1][lane] << 32;
    }
    return wide ? at : (uint32_t)at;
}

static size_t bytes_of(const instruction &i) {
    if (has(i, MOD_U8) || has(i, MOD_S8)) return 1;
    if (has(i, MOD_U16) || has(i, MOD_S16)) return 2;
    return has(i, MOD_128) ? 16 : has(i, MOD_64) ? 8 : 4;
}

static void put_parts(warp &w, operand to, uint32_t (*parts)[LANES], size_t count, uint32_t lanes) {
    if (to.reg == RZ) return;
    for (size_t k = 0; k < count; k++, to.reg++) put(w, to, parts[k], lanes);
}

static void load(warp &w, const instruction &i, uint32_t lanes) {
    const size_t bytes = bytes_of(i), parts = bytes < 4 ? 1 : bytes / 4;
    const operand &o = i.from[0];
    uint32_t x[4][LANES];
    for (int l = 0; l < LANES; l++) {
        if (!(lanes >> l & 1)) continue;
        uint32_t part[4] = {};
        if (o.kind == CONSTANT)
            memcpy(part, constant(w, o, l, bytes), bytes);
        else
            memcpy(part, memory(w, i.extra, address(w, o, i.extra, l), l, bytes), bytes);
        if (has(i, MOD_S8)) part[0] = (uint32_t)(int8_t)part[0];
        if (has(i, MOD_S16)) part[0] = (uint32_t)(int16_t)part[0];
        for (size_t k = 0; k < parts; k++) x[k][l] = part[k];
    }
    put_parts(w, i.to, x, parts, lanes);
}

static void store(warp &w, const instruction &i, uint32_t lanes) {
    const size_t bytes = bytes_of(i);
    const operand &o = i.from[1];
    for (int l = 0; l < LANES; l++) {
        if (!(lanes >> l & 1)) continue;
        uint32_t part[4] = {};
        for (size_t k = 0; k < (bytes + 3) / 4 && o.reg != RZ; k++) part[k] = w.reg[o.reg + k][l];
        memcpy(memory(w, i.extra, address(w, i.from[0], i.extra, l), l, bytes), part, bytes);
    }
}

template <class T> static T combined(const instruction &i, T a, T b, T c) {
    if (has(i, MOD_CAS)) return a == b ? c : a;
    if (has(i, MOD_EXCH)) return b;
    if (has(i, MOD_MIN)) return b < a ? b : a;
    if (has(i, MOD_MAX)) return b > a ? b : a;
    if (has(i, MOD_AND)) return a & b;
    if (has(i, MOD_OR)) return a | b;
    if (has(i, MOD_XOR)) return a ^ b;
    return a + b;
}

static void atomic(warp &w, const instruction &i, uint32_t lanes) {
    const size_t bytes = bytes_of(i);
    uint64_t x[LANES], y[LANES];
    wide_values(w, i.from[1], x);
    wide_values(w, i.from[2], y);
    uint32_t old[2][LANES];
    for (int l = 0; l < LANES; l++) {
        if (!(lanes >> l & 1)) continue;
        uint8_t *p = memory(w, i.extra, address(w, i.from[0], i.extra, l), l, bytes);
        uint64_t before = 0, after;
        memcpy(&before, p, bytes);
        const uint32_t a = (uint32_t)before, b = (uint32_t)x[l], c = (uint32_t)y[l];
        if (has(i, MOD_F32))
            after = float_bits(bits_float(a) + bits_float(b));
        else if (bytes == 8)
            after = combined(i, before, x[l], y[l]);
        else if (has(i, MOD_S32))
            after = (uint32_t)combined(i, (int32_t)a, (int32_t)b, (int32_t)c);
        else
            after = combined(i, a, has(i, MOD_INC) ? 1 : b, c);
        memcpy(p, &after, bytes);
        old[0][l] = a, old[1][l] = (uint32_t)(before >> 32);
    }
    put_parts(w, i.to, old, bytes / 4, lanes);
}

void access(warp &w, const instruction &i, uint32_t lanes) {
    if (i.op == OP_STORE)
        store(w, i, lanes);
    else if (i.op == OP_ATOMIC)
        atomic(w, i, lanes);
    else
        load(w, i, lanes);
}

} // namespace sass
