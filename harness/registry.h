/* SPDX-License-Identifier: MIT
 *
 * The table of kernels. The Makefile generates it from the files in kernels/: see kernel_list.inc
 * in the build folder.
 *
 * A portable build has every host kernel for several levels of the CPU's instruction set. At its
 * start, a program takes one level for all of them: the best that the CPU can run, or the level
 * that EMBFUSE_ISA in the environment names. It takes its prefetches too (prefetch_choice.h). If either
 * cannot be had, there are no kernels, and registry_ready() says so; programs ask it before they do anything.
 */
#pragma once

#include "harness/error.h"
#include "kernels/kernel.h"

struct registered {
    const char *family; /* folder below kernels/ */
    const struct kernel *kernel;
};

/* Fails if this build and CPU cannot run the level in EMBFUSE_ISA, or if EMBFUSE_PREFETCH cannot be read. */
int registry_ready(struct error *err);

/* All kernels, by family and name; the last entry has no kernel. */
const struct registered *registry(void);

/* The level of the host kernels: avx512, avx2 or plain; native: the build has only one level. NULL: not
 * ready. */
const char *registry_isa(void);

/* The kernel of that name and operation; NULL if there is none, and err lists the known ones. */
const struct kernel *registry_find(enum operation operation, const char *name, struct error *err);

/* The words for the traits, joined by `between`; "" if there are none. */
enum { TRAITS_MAX = 160 };
const char *traits_text(unsigned traits, const char *between, char text[TRAITS_MAX]);

/* The widest row with elements narrower than fp32 that a host kernel takes: it keeps a copy of the row in
 * fp32 on its stack. */
enum { NARROW_DIM_MOST = 65536 };

/* "step", "forward", "gradient" or "weight_grad". */
const char *operation_name(enum operation operation);

/* True if a check of the operation compares bits, whatever the values. */
static inline bool operation_has_order(enum operation operation) {
    return operation == OP_FORWARD || operation == OP_WEIGHT_GRAD;
}

/* Why the kernel cannot run this batch with these tables, or NULL if it can. */
const char *kernel_refuses(const struct kernel *k, const struct batch *shape);
