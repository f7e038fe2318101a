/* SPDX-License-Identifier: MIT
 *
 * Times exchanges of the ranks that mpirun has started, of 8 bytes to 10 MB per pair, in the node and between nodes
 * apart. Prints a line of JSON for extras/ranks/rank_model.py: for each of the two links [messages, bytes, seconds] of
 * a rank, the slowest one's median. Exchanges follow one another, so that a shaper of the link has used up what it lets
 * through at once.
 */
#include <stdio.h>
#include <stdlib.h>

#include "extras/ranks/program.h"
#include "harness/measure/ceiling.h"
#include "harness/memory.h"
#include "kernels/shape.h"

enum {
    SIZES = 10,
    REPEATS = 7,
    MESSAGE_MOST = 16 << 20,
    BUFFER_MOST = 32 << 20, /* bytes of all messages of a rank */
    FILL = 1 << 20,         /* bytes of exchanges that are timed together, */
    TURNS_MOST = 200        /* and their number */
};

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool is_peer(const struct transport *t, int rank, bool in_node) {
    const int on_node = t->ranks / t->nodes;
    return rank != t->rank && (rank / on_node == t->rank / on_node) == in_node;
}

/* Seconds of an exchange with so many bytes for every peer. */
static int time_exchange(struct transport *t, bool in_node, size_t bytes, char *send, char *receive,
                         double *seconds, struct error *err) {
    const int turns = (int)min64(max64((int64_t)(FILL / bytes), 1), TURNS_MOST);
    struct parts out = parts_make(t->ranks);
    double times[REPEATS];
    int status = 0;
    for (int r = 0; r < t->ranks; r++)
        if (is_peer(t, r, in_node)) out.bytes[r] = bytes;
    parts_lay_out(&out, t->ranks, 1);
    for (int k = 0; status == 0 && k < REPEATS; k++) {
        const double begin = clock_seconds();
        for (int i = 0; status == 0 && i < turns; i++)
            status = transport_exchange(t, send, &out, receive, &out, err);
        times[k] = (clock_seconds() - begin) / turns;
    }
    parts_free(&out);
    qsort(times, REPEATS, sizeof *times, by_size);
    *seconds = times[REPEATS / 2];
    return status || transport_most(t, seconds, 1, err) ? -1 : 0;
}

static int measure_link(struct transport *t, bool in_node, struct error *err) {
    int status = 0, peers = 0;
    for (int r = 0; r < t->ranks; r++) peers += is_peer(t, r, in_node);
    if (peers == 0) return 0;
    const size_t most = (size_t)min64(BUFFER_MOST / peers, MESSAGE_MOST);
    char *send = must_have(calloc(most, (size_t)peers)),
         *receive = must_have(calloc(most, (size_t)peers));
    size_t bytes = 8;
    for (int k = 0; status == 0 && k < SIZES && bytes <= most; k++, bytes *= 5) {
        double seconds = 0;
        status = time_exchange(t, in_node, bytes, send, receive, &seconds, err);
        if (t->rank == 0)
            printf("%s[%d, %zu, %.6g]", k ? ", " : "", peers, (size_t)peers * bytes, seconds);
    }
    free(send);
    free(receive);
    return status;
}

int main(int argc, char **argv) {
    struct error err;
    struct transport *t = program_open(&argc, &argv);
    if (!t) return EXIT_USAGE;
    t->channel = CHANNEL_CONTROL;
    transport_phase(t, "measuring links");
    if (t->rank == 0) printf("{\"node\": [");
    int status = measure_link(t, true, &err);
    if (t->rank == 0) printf("], \"network\": [");
    if (status == 0) status = measure_link(t, false, &err);
    if (status) transport_give_up(t, &err);
    if (t->rank == 0) printf("]}\n");
    program_close(t);
    return EXIT_FINE;
}
