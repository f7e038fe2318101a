/* SPDX-License-Identifier: MIT */
#include "extras/ranks/board.h"

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
#include "harness/workload/spec_keys.h"
#include "extras/ranks/program.h"

/* The line of a rank. launch.py reads the text. */
struct line {
    _Atomic uint64_t beats;
    _Atomic uint64_t waits;                       /* odd: the rank waits for others */
    char text[BOARD_LINE - 2 * sizeof(uint64_t)]; /* "pid PID: phase" */
};

/* When a rank of this node last showed life, and last began or ended to wait. */
struct seen {
    uint64_t beats, waits;
    double alive, moved;
};

static const char path_name[] = "EMBFUSE_RANKS_BOARD", limit_name[] = "EMBFUSE_RANKS_LIMIT";

static struct {
    struct transport *transport;
    struct line *lines; /* [ranks + 1]; the last one beats once the end of the run is explained */
    pthread_t thread;
    int pid;      /* characters of "pid PID: " */
    double limit; /* seconds that all ranks may wait */
    atomic_bool stop;
} board;

/* The phase stands behind the number of the process, which does not change. */
void board_show(const char *phase) {
    if (!board.lines) return;
    char *text = board.lines[board.transport->rank].text;
    strncpy(text + board.pid, phase, sizeof board.lines->text - 1 - (size_t)board.pid);
}

void board_waits(void) {
    if (board.lines) atomic_fetch_add(&board.lines[board.transport->rank].waits, 1);
}

bool board_first_to_explain(void) {
    uint64_t none = 0;
    return !board.lines ||
           atomic_compare_exchange_strong(&board.lines[board.transport->ranks].beats, &none, 1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* mpirun ends the others. This is not the thread that may call MPI. */
static void end(const char *why) {
    if (!board_first_to_explain()) return;
    fprintf(stderr, "ranks: %s\n", why);
    _exit(EXIT_LOST);
}

/* A rank without text has not begun. One that has ended does not come back to the others. */
static bool ended_or_waits(const struct line *line) {
    return *line->text && (atomic_load(&line->beats) == 0 || atomic_load(&line->waits) % 2 == 1);
}

/* Ends the run if all ranks of this node have waited for the limit. */
static void end_if_stuck(const struct line *lines, const struct seen *seen, int first, int here,
                         double time) {
    char why[1000];
    for (int i = 0; i < here; i++)
        if (!ended_or_waits(&lines[i]) || time - seen[i].moved < board.limit) return;
    snprintf(why, sizeof why, "all ranks have waited for each other for %g s:", board.limit);
    for (int i = 0; i < here; i++)
        text_add(why, sizeof why, "%s rank %d, %.40s", i ? ";" : "", first + i,
                 strchr(lines[i].text, ':') + 2);
    end(why);
}

/* Watches the ranks of this node. Ranks of other nodes have no line here. */
static void *live(void *arg) {
    struct transport *t = board.transport;
    const int here = t->ranks / t->nodes, first = t->node * here;
    const struct line *lines = &board.lines[first];
    struct seen *seen = must_have(calloc((size_t)here, sizeof *seen));
    double last = now();
    char why[200];
    (void)arg;
    while (!atomic_load(&board.stop)) {
        atomic_fetch_add(&board.lines[t->rank].beats, 1);
        const struct timespec pause = {0, 100000000};
        nanosleep(&pause, NULL);
        const double time = now();
        /* A rank that was stopped itself has seen no signs. */
        const bool slept = time - last > BOARD_SECONDS / 2;
        last = time;
        for (int i = 0; i < here; i++) {
            struct seen *s = &seen[i];
            const uint64_t beats = atomic_load(&lines[i].beats),
                           waited = atomic_load(&lines[i].waits);
            const bool fresh = slept || s->alive == 0;
            if (beats != s->beats || fresh) s->beats = beats, s->alive = time;
            if (waited != s->waits || fresh) s->waits = waited, s->moved = time;
            if (beats == 0 || time - s->alive < BOARD_SECONDS) continue;
            snprintf(why, sizeof why, "rank %d has not answered for %d s (%.100s)", first + i,
                     BOARD_SECONDS, lines[i].text);
            end(why);
        }
        if (board.limit > 0) end_if_stuck(lines, seen, first, here, time);
    }
    free(seen);
    return NULL;
}

int board_open(struct transport *t, struct error *err) {
    const char *path = getenv(path_name), *limit = getenv(limit_name);
    const size_t bytes = (size_t)(t->ranks + 1) * sizeof *board.lines;
    if (!path || !*path) return 0;
    board.limit = t->nodes == 1 ? BOARD_LIMIT : 0;
    if (limit &&
        number_read(limit_name, true, 1, 1e6, limit, (struct where){NULL, 0}, &board.limit, err))
        return -1;
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
    board_show(t->phase);
    if (pthread_create(&board.thread, NULL, live, NULL) == 0) return 0;
    board.lines = NULL;
    return fail(err, "no thread for the board");
}

void board_unlink(void) {
    if (board.lines) unlink(getenv(path_name));
}

void board_close(void) {
    if (!board.lines) return;
    atomic_store(&board.stop, true);
    pthread_join(board.thread, NULL);
    board_show("the end");
    /* A rank that has ended is silent, and right. */
    atomic_store(&board.lines[board.transport->rank].beats, 0);
    board.lines = NULL;
}
