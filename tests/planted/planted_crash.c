/* SPDX-License-Identifier: MIT
 *
 * A kernel that is right, except on tables whose rows have so many floats: there it crashes, or what
 * else ends a run early happens while it runs, for the test that the run goes on without it, or says
 * that it did not end.
 */
#define _GNU_SOURCE
#include "kernels/kernel.h"

#include <omp.h>
#include <signal.h>
#include <unistd.h>

extern const struct kernel kernel_cpu_sort;

enum {
    IN_ONE_THREAD = 16, /* the last one, which is bound to one CPU */
    IN_ALL_THREADS,
    WHEN_TIMED,
    BY_ITS_STACK,
    WHEN_STOPPED,
    SENT_BY_ANOTHER,
    KILLED,
    IN_SECOND_VISIT, /* which has no check before its samples */
    LAST
};

static int *volatile nowhere;

/* In steps that do not go over the page behind the stack. */
static int deeper(volatile char *above) {
    volatile char own[64];
    own[0] = above[0];
    return own[0] ? 0 : deeper(own) + own[0]; /* it never is */
}

static void crash(int32_t dim) {
    char first = 0;
    if (dim == BY_ITS_STACK) deeper(&first);
    if (dim == WHEN_STOPPED) raise(SIGTERM);
    if (dim == KILLED) kill(getpid(), SIGKILL);
    if (dim == SENT_BY_ANOTHER && fork() == 0) _exit(kill(getppid(), SIGSEGV));
    if (dim == SENT_BY_ANOTHER) pause();
    *nowhere = 1;
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    int32_t dim = in->tables[0].dim;
    static int timed;
    if (dim == IN_SECOND_VISIT && (timed += how->mark != NULL) < 3) dim = 0;
    if (dim >= IN_ONE_THREAD && dim < LAST && (dim != WHEN_TIMED || how->mark)) {
#pragma omp parallel num_threads(how->threads)
        if (dim == IN_ALL_THREADS || omp_get_thread_num() == how->threads - 1) crash(dim);
    }
    return kernel_cpu_sort.run(in, steps, io, how);
}

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return kernel_cpu_sort.scratch_bytes(shape, threads);
}

DEFINE_KERNEL(planted_crash) = {
    .name = "planted_crash",
    .label = "crashes",
    .idea = "Crashes on rows of some lengths.",
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
