/* SPDX-License-Identifier: MIT
 *
 * One layout function per kernel gives both the number of bytes (base NULL) and the address of
 * each array, so that scratch_bytes and run cannot disagree.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel.h"

struct scratch {
    char *base;  /* NULL: only count */
    size_t used; /* bytes handed out so far */
};

/* The next count*size bytes, aligned to KERNEL_ALIGN; NULL while counting. */
HOST_DEVICE void *scratch_take(struct scratch *s, int64_t count, size_t size) {
    size_t at = (s->used + KERNEL_ALIGN - 1) / KERNEL_ALIGN * KERNEL_ALIGN;
    s->used = at + (size_t)count * size;
    return s->base ? s->base + at : NULL;
}
