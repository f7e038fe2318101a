/* SPDX-License-Identifier: MIT
 *
 * Large buffers: huge pages, guard zones, refusal before allocating what the machine does not have,
 * and the two ways in which memory is observed.
 */
#ifndef EMBFUSE_MEMORY_H
#define EMBFUSE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/error.h"

/* A buffer between two guard zones. */
struct buffer {
    void *data;   /* aligned to KERNEL_ALIGN; NULL if bytes is 0 */
    size_t bytes; /* asked for */
    void *mapping;
    size_t mapped;
};

/* Bytes that can be allocated now without swapping: MemAvailable, or what the control group leaves.
 */
int64_t memory_available(void);

/* Fails, with the figure, when `bytes` more are not available. what: "10 tables", for the message.
 */
int memory_require(int64_t bytes, const char *what, struct error *err);

/* Zero-filled on first touch. Fails as memory_require does. */
int buffer_alloc(struct buffer *b, size_t bytes, const char *what, struct error *err);
void buffer_free(struct buffer *b);

/* Gives the pages back to the system; the content is zero again. */
void buffer_drop(struct buffer *b);

/* False if somebody wrote outside of [data, data + bytes). */
bool buffer_intact(const struct buffer *b);

/* Highest resident size since memory_watch(), above the size at that moment, in bytes; -1 where the
 * system does not tell. */
struct memory_watch {
    int64_t before;
};
struct memory_watch memory_watch(void);
int64_t memory_watch_peak(struct memory_watch w);

#endif
