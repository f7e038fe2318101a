/* SPDX-License-Identifier: MIT
 *
 * What memory costs one thread on this machine, apart from any kernel. Two questions:
 *
 * How long does a read take, of random lines within a span? Each read needs the one before. A cold span
 * grows slower where the TLB no longer holds its pages, be it the guest's or the host's. A warm one grows
 * slower where the caches end that this thread reaches; beyond them, reading all of it evicts page tables, too.
 *
 * Are prefetches of many rows at once dropped? A loop prefetches a block of random rows, then the rows are
 * read. Beside it: rows that nothing has touched, rows that loads have touched, and a prefetch for each row
 * that is read.
 *
 * Usage: memory MIB. MIB is the largest span, 64 to 65536. It prints lines of JSON for extras/studies/memory.py:
 * what the machine is, then every sample in ns of a line, or of a row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/ceiling.h"
#include "harness/measure/environment.h"
#include "harness/memory.h"
#include "harness/workload/permute.h"
#include "kernels/rng.h"

enum {
    LINE = 64,
    SPAN_LEAST = 64 << 10,
    STEPS = 20000,        /* of a chain, in a sample */
    CHAIN_MOST = 1 << 23, /* lines */
    SAMPLES = 5,
    ROW = 256,
    BLOCK = 1000, /* rows: 250 KiB, which L2 holds */
    BLOCKS = 301,
    PACED = 8, /* rows ahead */
};

static void must(int status, const struct error *err) {
    if (status == 0) return;
    fprintf(stderr, "memory: %s\n", err->text);
    exit(EXIT_USAGE);
}

/* The compiler must not know that what was read is of no use. */
static volatile uint64_t seen;

/* --- latency */

struct line {
    struct line *next;
    char rest[LINE - sizeof(struct line *)];
};

/* One ring through all lines of the span in random order; of a large span, one line out of each part. */
static int64_t chain(struct line *lines, int64_t span) {
    const int64_t all = span / LINE, count = all < CHAIN_MOST ? all : CHAIN_MOST;
    const struct permute order = permute_make(1, count);
    struct line *last = lines + permute_at(&order, count - 1) * (all / count);
    for (int64_t i = 0; i < count; i++) {
        struct line *line = lines + permute_at(&order, i) * (all / count);
        last->next = line;
        last = line;
    }
    return count;
}

static double follow(struct line **at, int64_t steps) {
    struct line *line = *at;
    const double begin = clock_seconds();
    for (int64_t i = 0; i < steps; i++) line = line->next;
    const double seconds = clock_seconds() - begin;
    *at = line;
    seen = (uint64_t)(uintptr_t)line;
    return 1e9 * seconds / (double)steps;
}

/* Reads every line of the span: what the caches can hold of it, they hold afterwards. */
static void warm(const struct line *lines, int64_t span) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < span / LINE; i++) sum += (uint64_t)(uintptr_t)lines[i].next;
    seen = sum;
}

static void latency(const struct buffer *memory, const struct buffer *others) {
    for (int64_t span = SPAN_LEAST; span <= (int64_t)memory->bytes; span *= 2) {
        struct line *lines = memory->data, *at = lines;
        fprintf(stderr, "memory: %lld KiB\n", (long long)(span >> 10));
        const int64_t count = chain(lines, span);
        for (int k = 0; k < SAMPLES; k++) {
            memory_fill(others->data, k, others->bytes);
            const double cold = follow(&at, count < STEPS ? count : STEPS);
            for (int visit = 0; visit < 2; visit++) warm(lines, span);
            printf("{\"part\": \"latency\", \"span\": %lld, \"cold\": %.6g, \"warm\": %.6g}\n",
                   (long long)span, cold, follow(&at, STEPS));
        }
    }
}

/* --- prefetches */

static void prefetch_row(const char *row) {
    for (int b = 0; b < ROW; b += LINE) __builtin_prefetch(row + b, 0, 3);
}

static uint64_t read_row(const char *row) {
    uint64_t sum = 0, word;
    for (int b = 0; b < ROW; b += LINE) {
        memcpy(&word, row + b, sizeof word);
        sum += word;
    }
    return sum;
}

enum way { NOTHING, PREFETCHES, LOADS, A_PREFETCH_A_ROW, WAYS };
static const char *const way_name[] = {"nothing", "prefetches", "loads", "a prefetch a row"};

static void block(const char *const *row, enum way way) {
    uint64_t sum = 0;
    const double begin = clock_seconds();
    if (way == PREFETCHES)
        for (int i = 0; i < BLOCK; i++) prefetch_row(row[i]);
    if (way == LOADS)
        for (int i = 0; i < BLOCK; i++) sum += read_row(row[i]);
    const double between = clock_seconds();
    for (int i = 0; i < BLOCK; i++) {
        if (way == A_PREFETCH_A_ROW && i + PACED < BLOCK) prefetch_row(row[i + PACED]);
        sum += read_row(row[i]);
    }
    const double end = clock_seconds();
    seen = sum;
    printf("{\"part\": \"prefetches\", \"way\": \"%s\", \"before\": %.6g, \"read\": %.6g}\n",
           way_name[way], 1e9 * (between - begin) / BLOCK, 1e9 * (end - between) / BLOCK);
}

/* The rows of a block are drawn from all of the memory, so that caches hold next to none of them. */
static void prefetches(const struct buffer *memory, const struct buffer *others) {
    const uint64_t rows = memory->bytes / ROW;
    static const char *row[BLOCK];
    uint64_t drawn = 0;
    memory_fill(others->data, 0, others->bytes);
    for (int k = 0; k < BLOCKS; k++)
        for (int way = 0; way < WAYS; way++) {
            for (int i = 0; i < BLOCK; i++)
                row[i] = (const char *)memory->data + rng_u64(2, drawn++) % rows * ROW;
            block(row, way);
        }
}

static void context(void *ctx, const char *key, const char *value) {
    (void)ctx;
    printf("{\"%s\": \"", key);
    for (; *value; value++) putchar(*value == '"' || *value == '\\' ? '\'' : *value);
    printf("\"}\n");
}

int main(int argc, char **argv) {
    struct error err;
    struct buffer memory, others;
    char rest;
    int mib;
    if (argc != 2 || sscanf(argv[1], "%d%c", &mib, &rest) != 1 || mib < 64 || mib > 65536) {
        fprintf(stderr, "usage: memory MIB, from 64 to 65536\n");
        return EXIT_USAGE;
    }
    must(ceiling_ready(&err), &err);
    must(buffer_alloc(&memory, (size_t)mib << 20, "the largest span", &err), &err);
    must(buffer_alloc(&others, 2 * (size_t)ceiling_last_level_cache(1), "what empties the caches",
                      &err),
         &err);
    memory_fill(memory.data, 1, memory.bytes);
    environment_describe(1, NULL, context, NULL);
    latency(&memory, &others);
    prefetches(&memory, &others);
    buffer_free(&others);
    buffer_free(&memory);
    return 0;
}
