/* SPDX-License-Identifier: MIT
 *
 * An interpreter of the machine code of sm_90: the structs that its parts share. decode.py fills `instruction` from
 * nvdisasm's text, and learns the numbers of operations and modifiers from sass_names().
 */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sass {

enum { LANES = 32, RZ = 255, UNIFORM = 256, URZ = UNIFORM + 63, REGISTERS = UNIFORM + 64 };
enum { PT = 7, UNIFORM_PREDICATE = 8, INVERTED = 16 };

/* clang-format off */
#define SASS_OPERATIONS(X) \
    X(UNKNOWN) X(NOP) X(MOV) X(S2R) X(IMAD) X(IADD3) X(IABS) X(IMNMX) X(VIADDMNMX) X(FMNMX) X(LEA) \
    X(SHF) X(LOP3) X(PLOP3) X(SEL) X(ISETP) X(FSETP) X(PRMT) X(BREV) X(POPC) X(FLO) X(I2F) X(F2I) \
    X(MUFU) X(FADD) X(FMUL) X(FFMA) X(FCHK) X(HADD2) X(F2FP) X(P2R) X(R2P) X(R2UR) X(VOTE) \
    X(MATCH) X(REDUX) X(SHFL) X(LOAD) X(STORE) X(ATOMIC) \
    X(BRA) X(BSSY) X(BSYNC) X(BREAK) X(WARPSYNC) X(BAR) X(CALL) X(RET) X(EXIT) /* these change the flow */
#define SASS_MODIFIERS(X) \
    X(U32) X(S32) X(U64) X(S64) X(U8) X(S8) X(U16) X(S16) X(64) X(128) X(X) X(HI) X(WIDE) X(L) \
    X(R) X(W) X(EX) X(AND) X(OR) X(XOR) X(PAND) X(ADD) X(SUM) X(MIN) X(MAX) X(EXCH) X(CAS) X(INC) \
    X(SX32) X(SH) X(F32) X(F16) X(BF16) X(FTZ) X(RM) X(RP) X(RZ) X(TRUNC) X(FLOOR) X(CEIL) X(RCP) \
    X(RSQ) X(SQRT) X(EX2) X(LG2) X(ANY) X(ALL) X(EQ) X(IDX) X(UP) X(DOWN) X(BFLY) X(DIV) X(U)
/* clang-format on */
#define X(name) OP_##name,
enum operation : uint16_t { SASS_OPERATIONS(X) };
#undef X
#define X(name) MOD_##name,
enum modifier { SASS_MODIFIERS(X) };
#undef X

enum kind : uint8_t { NONE, REGISTER, IMMEDIATE, CONSTANT, ADDRESS };
/* Flags of operands. SIGN negates a float, MINUS an integer. PAIR: 64 bits in two registers. */
enum flag : uint8_t {
    MINUS = 1,
    NOT = 2,
    MAGNITUDE = 4,
    SIGN = 8,
    LOW_HALF = 16,
    HIGH_HALF = 32,
    PAIR = 64,
    UNSIGNED = 128
};

/* value: an immediate, or the offset of a constant or address. second: a uniform register that is added. */
struct operand {
    uint8_t kind, flags;
    uint16_t reg, second, scale;
    int64_t value;
};

/* compare: bits of less, equal, greater and unordered. extra: a shift, table of truth, barrier,
 * space or other number. target: the number of an instruction. */
struct instruction {
    uint16_t op;
    uint8_t compare, guard, out[2], in[3];
    uint32_t extra;
    int32_t target;
    uint64_t modifiers;
    struct operand to, from[4];
};

enum space { GLOBAL, GENERIC, SHARED, LOCAL };
enum { SHARED_WINDOW = 0x7e00, LOCAL_BYTES = 4096 };

struct region {
    uint64_t base, bytes;
    uint8_t *at;
};

struct machine {
    std::vector<instruction> code;
    std::vector<uint64_t> issued,
        lanes; /* of each instruction: warps that issued it, lanes that it concerned */
    std::vector<uint8_t> constants;
    std::vector<region> regions;
    size_t last_region = 0;
    std::vector<uint8_t> shared;
    uint32_t block = 0, threads = 0;
    uint64_t left = 0; /* instructions until it gives up */
    std::string problem;
    int32_t problem_at = -1;
};

/* Lanes that run together. */
struct group {
    uint32_t at, lanes;
};

/* Barriers: 0 to 15 are B0 to B15, then one for WARPSYNC and one for the block's. */
enum { OF_WARP = 16, OF_BLOCK, BARRIERS };

struct warp {
    alignas(64) uint32_t reg[REGISTERS][LANES];
    uint32_t predicate[16];
    uint32_t exited;
    std::vector<group> ready;
    int8_t waits[LANES];               /* a barrier, or -1 */
    uint32_t at[LANES];                /* where lanes wait */
    uint32_t barrier[BARRIERS][LANES]; /* the lanes that each lane waits for there */
    uint8_t local[LANES][LOCAL_BYTES];
    uint32_t first;
    struct machine *machine;
};

static inline bool has(const instruction &i, modifier m) {
    return i.modifiers >> m & 1;
}

static inline uint32_t predicate(const warp &w, int k) {
    return k & INVERTED ? ~w.predicate[k & 15] : w.predicate[k & 15];
}

/* The 32 values of an operand: its register, or `space` after they were put there. */
const uint32_t *values(const warp &w, const operand &o, uint32_t *space);
/* The 32 values of a 64-bit operand. */
void wide_values(const warp &w, const operand &o, uint64_t *to);
void put(warp &w, const operand &to, const uint32_t *values, uint32_t lanes);
void put_predicate(warp &w, int k, uint32_t value, uint32_t lanes);

/* Executes an instruction that is neither a branch nor a barrier; throws std::string. */
void execute(warp &w, const instruction &i, uint32_t lanes);
/* Loads, stores and atomics. */
void access(warp &w, const instruction &i, uint32_t lanes);

} // namespace sass
