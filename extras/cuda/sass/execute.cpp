/* SPDX-License-Identifier: MIT
 *
 * Computes one instruction.
 */
#include "extras/cuda/sass/step.h"

namespace sass {

void execute(warp &w, const instruction &i, uint32_t lanes) {
    if (i.op == OP_LOAD || i.op == OP_STORE || i.op == OP_ATOMIC) return access(w, i, lanes);
    step s(w, i, lanes);
    const bool narrow_fp16 = !has(i, MOD_BF16);
    auto packed = [=](uint32_t x) {
        return dtype_narrow(narrow_fp16 ? FP16 : BF16, bits_float(x), ROUND_NEAREST, 0);
    };
    switch (i.op) {
    case OP_NOP: break;
    case OP_MOV: put(w, i.to, s.a, lanes); break;
    case OP_S2R: special_register(s); break;
    case OP_IMAD: multiply_add(s); break;
    case OP_IADD3: add3(s); break;
    case OP_IABS:
        s.integers([](uint32_t a, uint32_t, uint32_t) { return a >> 31 ? -a : a; });
        break;
    case OP_IMNMX:
    case OP_VIADDMNMX: extremes(s); break;
    case OP_LEA: scaled_add(s); break;
    case OP_SHF: shift(s); break;
    case OP_LOP3: logic3(s); break;
    case OP_PLOP3: predicate_logic3(s); break;
    case OP_SEL: {
        const uint32_t p = s.in(0);
        EACH(l) s.result[l] = p >> l & 1 ? s.a[l] : s.b[l];
        put(w, i.to, s.result, lanes);
        break;
    }
    case OP_FMNMX: {
        const uint32_t p = s.in(0);
        int l = 0;
        s.floats([&](float a, float b, float) {
            return p >> l++ & 1 ? std::fmin(a, b) : std::fmax(a, b);
        });
        break;
    }
    case OP_ISETP: compare_integers(s); break;
    case OP_FSETP: compare_floats(s); break;
    case OP_PRMT: s.integers(permuted); break;
    case OP_BREV: s.integers([](uint32_t a, uint32_t, uint32_t) { return reversed(a); }); break;
    case OP_POPC:
        s.integers([](uint32_t a, uint32_t, uint32_t) { return (uint32_t)__builtin_popcount(a); });
        break;
    case OP_FLO: s.integers([&](uint32_t a, uint32_t, uint32_t) { return leading(i, a); }); break;
    case OP_I2F: integer_to_float(s); break;
    case OP_F2I: float_to_integer(s); break;
    case OP_MUFU: s.floats([&](float a, float, float) { return special(i, a); }); break;
    case OP_HADD2:
    case OP_FADD: s.floats([](float a, float b, float) { return a + b; }); break;
    case OP_FMUL: s.floats([](float a, float b, float) { return a * b; }); break;
    case OP_FFMA: s.floats([&](float a, float b, float c) { return fused(i, a, b, c); }); break;
    case OP_FCHK: s.out(0, s.votes([&](int l) { return division_is_slow(s.a[l], s.b[l]); })); break;
    case OP_F2FP:
        s.integers([&](uint32_t a, uint32_t b, uint32_t) { return packed(a) << 16 | packed(b); });
        break;
    case OP_P2R: from_predicates(s); break;
    case OP_R2P: to_predicates(s); break;
    case OP_R2UR: to_uniform(s); break;
    case OP_VOTE: vote(s); break;
    case OP_MATCH: match(s); break;
    case OP_REDUX: reduce(s); break;
    case OP_SHFL: shuffle(s); break;
    default: throw std::string("no rule for it");
    }
}

} // namespace sass
