/* SPDX-License-Identifier: MIT
 *
 * Planted bugs: fences that are missing, misplaced or too narrow. Memory is sequentially
 * consistent here, so only ThreadSanitizer can find them, and it must do so in every seed, and
 * for groups of any size.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulation/selftest/arrival.h"
#include "emulation/selftest/hand_over.h"

enum { SEEDS = 6 };
static const char *const FOUND = "a race in every run";

/* True if a process that runs this reports a race. */
template <class Run> static bool races(Run run) {
    const pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        run();
        exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 66; /* ThreadSanitizer's */
}

template <class Run> static void in_every_seed(const char *what, Run run) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        if (!races([&] { emulation_schedule(EMULATION_RANDOM, seed), run(); })) {
            fprintf(stderr, "no race in seed %d: %s\n", int(seed), what);
            exit(1);
        }
}

/* Groups smaller than `from` or larger than `to` work without the missing part. */
template <protocol P, int from, int to> static void arrives() {
    for (int count = from; count <= to; count *= 2) {
        char what[64];
        snprintf(what, sizeof what, "groups of %d lanes", count);
        in_every_seed(what, [=] { sum_by_last_group<P>(count); });
    }
    fprintf(stderr, "%s\n", FOUND);
    exit(1);
}

/* --- one block hands a value to another, which waits for it */

template <bug BUG> static void hands_over() {
    in_every_seed("two blocks", [] { run_hand_over<BUG>(); });
    fprintf(stderr, "%s\n", FOUND);
    exit(1);
}

extern const self_case planted_fences[] = {
    {"arrival without its release fence", arrives<NO_RELEASE_FENCE, 1, 64>, {{THREAD, FOUND}}},
    {"arrival without the barrier of the group", arrives<NO_GROUP_SYNC, 2, 64>, {{THREAD, FOUND}}},
    {"arrival without its acquire fence", arrives<NO_ACQUIRE_FENCE, 1, 64>, {{THREAD, FOUND}}},
    {"arrival without its last barrier", arrives<NO_LAST_SYNC, 2, 32>, {{THREAD, FOUND}}},
    {"arrival with a fence before the barrier", arrives<EARLY_FENCE, 2, 64>, {{THREAD, FOUND}}},
    {"hand-over with a fence of the block", hands_over<FENCE_OF_BLOCK>, {{THREAD, FOUND}}},
    {"hand-over of what is stored after the fence",
     hands_over<STORE_AFTER_FENCE>,
     {{THREAD, FOUND}}},
    {"hand-over with the fence before the wait", hands_over<FENCE_BEFORE_WAIT>, {{THREAD, FOUND}}},
    {"hand-over with an atomic on another address", hands_over<ANOTHER_ADDRESS>, {{THREAD, FOUND}}},
    {},
};
