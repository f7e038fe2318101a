/* SPDX-License-Identifier: MIT */
#include "ranks/board.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "harness/memory.h"
#include "ranks/program.h"

/* The line of a rank. launch.py reads the text. */
struct line {
    _Atomic uint64_t beats;
    char text[BOARD_LINE - sizeof(uint64_t)]; /* "pid PID: phase" */
};

static const char path_name[] = "EMBFUSE_RANKS_BOARD";

static struct {
    struct transport *transport;
    struct line *lines; /* [ranks + 1]; the last one beats once the end of the run is explained */
    pthread_t thread;
    int pid; /* characters of "pid PID: " */
    atomic_bool stop;
} board;

/* The phase stands behind the number of the process, which does not change. */
static void show(const char *phase) {
    char *text = board.lines[board.transport->rank].text;
    strncpy(text + board.pid, phase, sizeof board.lines->text - 1 - (size_t)board.pid);
}

static bool first_to_explain(void) {
    uint64_t nobody = 0;
    return atomic_compare_exchange_strong(&board.lines[board.transport->ranks].beats, &nobody, 1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ranks of this node: those of others have no line here. */
static void *live(void *arg) {
    struct transport *t = board.transport;
    const int here = t->ranks / t->nodes, first = t->node * here;
    uint64_t *seen = must_have(calloc((size_t)here, sizeof *seen));
    double *since = must_have(calloc((size_t)here, sizeof *since)), last = now();
    (void)arg;
    while (!atomic_load(&board.stop)) {
        atomic_fetch_add(&board.lines[t->rank].beats, 1);
        const struct timespec pause = {0, 100000000};
        nanosleep(&pause, NULL);
        const double time = now();
        /* Who was stopped itself has seen nobody. */
        const bool slept = time - last > BOARD_SECONDS / 2;
        last = time;
        for (int i = 0; i < here; i++) {
            const uint64_t beats = atomic_load(&board.lines[first + i].beats);
            if (beats != seen[i] || slept || since[i] == 0) seen[i] = beats, since[i] = time;
            if (beats == 0 || time - since[i] < BOARD_SECONDS) continue;
            if (!first_to_explain()) continue;
            fprintf(stderr, "ranks: rank %d has not answered for %d s (%.100s)\n", first + i,
                    BOARD_SECONDS, board.lines[first + i].text);
            /* mpirun ends the others. This is not the thread that may call MPI. */
            _exit(EXIT_LOST);
        }
    }
    free(seen);
    free(since);
    return NULL;
}

int board_open(struct transport *t, struct error *err) {
    const char *path = getenv(path_name);
    const size_t bytes = (size_t)(t->ranks + 1) * sizeof *board.lines;
    if (!path || !*path) return 0;
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes)) {
        if (file >= 0) close(file);
        return fail(err, "%s: %s", path, strerror(errno));
    }
    void *lines = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (lines == MAP_FAILED) return fail(err, "%s: %s", path, strerror(errno));
    board.transport = t;
    board.lines = lines;
    board.pid =
        snprintf(board.lines[t->rank].text, sizeof board.lines->text, "pid %d: ", (int)getpid());
    t->show = show;
    t->first_to_explain = first_to_explain;
    show(t->phase);
    if (pthread_create(&board.thread, NULL, live, NULL))
        return fail(err, "no thread for the board");
    return 0;
}

void board_unlink(void) {
    if (board.lines) unlink(getenv(path_name));
}

void board_close(void) {
    if (!board.lines) return;
    atomic_store(&board.stop, true);
    pthread_join(board.thread, NULL);
    /* A rank that has ended is silent, and right. */
    atomic_store(&board.lines[board.transport->rank].beats, 0);
    board.transport->show = NULL;
    board.transport->first_to_explain = NULL;
    board.lines = NULL;
}
