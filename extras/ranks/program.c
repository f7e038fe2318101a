/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "extras/ranks/program.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/memory.h"
#include "kernels/shape.h"
#include "extras/ranks/board.h"
#include "extras/ranks/place_ranks.h"

/* What all ranks have alike: hashes of this program's file, and of its arguments. */
struct same {
    uint64_t program, words;
};

static int own_hashes(int argc, char **argv, struct same *out, struct error *err) {
    enum { BLOCK = 1 << 20 };
    *out = (struct same){0};
    for (int i = 1; i < argc; i++)
        out->words = XXH3_64bits_withSeed(argv[i], strlen(argv[i]) + 1, out->words);
    FILE *f = fopen("/proc/self/exe", "rb");
    if (!f) return fail(err, "/proc/self/exe: %s", strerror(errno));
    char *block = must_have(malloc(BLOCK));
    for (size_t bytes; (bytes = fread(block, 1, BLOCK, f)) > 0;)
        out->program = XXH3_64bits_withSeed(block, bytes, out->program);
    free(block);
    fclose(f);
    return 0;
}

/* Orders of rank 0 mean the same to all ranks only if all run one program. Only rank 0 reads its arguments, so they
 * must not differ. Rank 0 says which rank differs. */
static int same_program(struct transport *t, int argc, char **argv, struct error *err) {
    struct same own, *all = must_have(calloc((size_t)t->ranks, sizeof *all));
    int status = transport_agree(t, own_hashes(argc, argv, &own, err), err);
    if (status == 0) status = transport_all_gather(t, &own, sizeof own, all, err);
    for (int r = 1; status == 0 && r < t->ranks; r++)
        if (all[r].program != all[0].program)
            status = fail(
                err, "rank %d runs another program than rank 0; start one build on all ranks", r);
        else if (all[r].words != all[0].words)
            status =
                fail(err, "rank %d has other arguments than rank 0; give all ranks the same", r);
    free(all);
    return status;
}

/* Is in programs that have devices and NCCL. */
#pragma weak transport_nccl_open

struct transport *program_open(int *argc, char ***argv) {
    struct error err;
    struct transport *t = transport_mpi_open(argc, argv, &err);
    if (t && transport_agree(t, board_open(t, &err), &err) == 0 &&
        same_program(t, *argc, *argv, &err) == 0) {
        board_unlink();
        t->open_device = transport_nccl_open;
        return t;
    }
    if (!t || t->rank == 0) fprintf(stderr, "ranks: %s\n", err.text);
    if (t) {
        board_close(); /* its thread uses the transport */
        t->ops->close(t);
    }
    return NULL;
}

int program_threads(const struct transport *t) {
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    const int own = CPU_COUNT(&cpus), here = t->ranks / t->nodes;
    const bool bound = own < (int)sysconf(_SC_NPROCESSORS_ONLN);
    return (int)max64(1, bound ? own : own / here);
}

void program_close(struct transport *t) {
    board_close();
    if (t->device) t->device->ops->close(t->device);
    t->ops->close(t);
}

int program_run(struct transport *t, int (*lead)(void *ctx), void *ctx) {
    struct error err;
    int status = EXIT_FINE;
    if (t->rank == 0) {
        status = lead(ctx);
        if (ranks_dismiss(t, &err) && status == EXIT_FINE) status = EXIT_USAGE;
    } else if (ranks_follow(t, &err))
        transport_give_up(t, &err);
    program_close(t);
    return status;
}
