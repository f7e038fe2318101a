/* SPDX-License-Identifier: MIT
 *
 * Large buffers: huge pages, guard zones, refusal of what the machine cannot hold, and two ways to
 * observe memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "harness/error.h"

/* A buffer between two guard zones. */
struct buffer {
    void *data;   /* aligned to KERNEL_ALIGN; NULL if bytes is 0 */
    size_t bytes; /* asked for */
    void *mapping;
    size_t mapped;
};

/* Returns p, and ends the program if it is NULL: only for memory that is small beside the tables. */
static inline void *must_have(void *p) {
    if (!p) abort();
    return p;
}

/* Reads the beginning of a file in /proc or /sys, or nothing, as text. Returns its bytes. */
size_t read_start(const char *path, char *text, size_t size);

/* The number after `key` at the begin of a line of such a file; -1: there is none. */
int64_t read_number(const char *path, const char *key);

/* Bytes that can be allocated now without swapping: MemAvailable, or what the control group leaves.
 */
int64_t memory_available(void);

/* Fails and gives the figure if `bytes` more are not available. what: "10 tables", for the message.
 */
int memory_require(int64_t bytes, const char *what, struct error *err);

/* count * size bytes, aligned to 64; large arrays ask for huge pages. The caller calls free().
 * NULL: out of memory. */
void *array_alloc(int64_t count, size_t size);

/* The same, but fails as memory_require does, or when out of memory. */
void *array_require(int64_t count, size_t size, const char *what, struct error *err);

/* memset() by all threads: new memory has a page fault every 2 MiB. */
void memory_fill(void *to, int byte, size_t bytes);

/* Zero-filled on first touch. Fails as memory_require does. */
int buffer_alloc(struct buffer *b, size_t bytes, const char *what, struct error *err);
void buffer_free(struct buffer *b);

/* False if anything wrote outside [data, data + bytes). */
bool buffer_intact(const struct buffer *b);

/* The highest resident size since memory_watch() minus the size at that moment, in bytes; -1 if the
 * system does not report it. */
struct memory_watch {
    int64_t before;
};
struct memory_watch memory_watch(void);
int64_t memory_watch_peak(struct memory_watch w);
