/* SPDX-License-Identifier: MIT
 *
 * The prefetches of the host kernels (kernels/host/prefetch.h), as EMBFUSE_PREFETCH in the environment sets
 * them: rows:L2:8192,grads:L1:2048,sort:524288. `rows` and `grads` name a cache and the bytes ahead, from 64 to
 * 1048576, and `sort` the bytes of a bucket, from 0 to 1048576. A part that is not named keeps its default.
 */
#pragma once

#include "harness/error.h"
#include "kernels/host/prefetch.h"

enum { PREFETCH_TEXT = 64 };

/* The default, from the sizes of a core's caches. */
struct prefetch_choice prefetch_default(void);

/* Takes the environment's choice, or the default. Fails, with the default, if the text is not as above. */
int prefetch_choose(struct error *err);

/* A choice as text. */
const char *prefetch_text(const struct prefetch_choice *choice, char text[PREFETCH_TEXT]);
