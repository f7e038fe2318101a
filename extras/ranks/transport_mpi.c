/* SPDX-License-Identifier: MIT
 *
 * Ranks that mpirun has started. An exchange is a nonblocking send and receive per pair of ranks that has bytes,
 * in pieces below MPI's int (MPI_Alltoallv of MPI 3 has int sizes and places). Messages are matched probes, so
 * that a receive takes what it has seen. Node numbers come from MPI's shared-memory
 * communicators. Only this file calls MPI.
 */
#include <mpi.h>

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "extras/ranks/transport.h"

enum { TAG_PIECE = 32000, PIECE = 1 << 30 };

/* A message that MPI still reads. */
struct parcel {
    struct parcel *next;
    MPI_Request request;
    void *data;
};

struct over_mpi {
    struct transport transport;
    MPI_Comm world;
    MPI_Request *pieces; /* of the exchange under way */
    int num_pieces;
    struct parcel *parcels;
};

static struct over_mpi *mpi_of(struct transport *t) {
    return (struct over_mpi *)t;
}

/* Others wait for a rank whose message fails, so that ends the run. */
static int check(struct over_mpi *m, int status, const char *what, struct error *err) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (status == MPI_SUCCESS) return 0;
    MPI_Error_string(status, text, &length);
    fail(err, "MPI, %s: %.300s", what, text);
    if (m) transport_give_up(&m->transport, err);
    return -1;
}

static int barrier(struct transport *t, struct error *err) {
    return check(mpi_of(t), MPI_Barrier(mpi_of(t)->world), "barrier", err);
}

/* Pieces of a message to or from rank r: send() and receive() of MPI take an int. */
static int start_pieces(struct over_mpi *m, bool sends, char *data, size_t bytes, int r,
                        struct error *err) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        const int now = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        MPI_Request *request = &m->pieces[m->num_pieces++];
        const int status =
            sends ? MPI_Isend(data + at, now, MPI_BYTE, r, TAG_PIECE, m->world, request)
                  : MPI_Irecv(data + at, now, MPI_BYTE, r, TAG_PIECE, m->world, request);
        if (check(m, status, sends ? "send" : "receive", err)) return -1;
    }
    return 0;
}

/* Each rank begins with the next one, so that not all of them send to rank 0 first. */
static int start(struct transport *t, const void *send, const struct parts *out, void *receive,
                 const struct parts *in, struct error *err) {
    struct over_mpi *m = mpi_of(t);
    size_t most = 0;
    for (int r = 0; r < t->ranks; r++) most += out->bytes[r] / PIECE + in->bytes[r] / PIECE + 2;
    free(m->pieces);
    m->pieces = must_have(calloc(most, sizeof *m->pieces));
    m->num_pieces = 0;
    for (int k = 1; k < t->ranks; k++) {
        const int from = (t->rank + t->ranks - k) % t->ranks, to = (t->rank + k) % t->ranks;
        if (start_pieces(m, false, (char *)receive + in->at[from], in->bytes[from], from, err) ||
            start_pieces(m, true, (char *)send + out->at[to], out->bytes[to], to, err))
            return -1;
    }
    if (out->bytes[t->rank])
        memmove((char *)receive + in->at[t->rank], (const char *)send + out->at[t->rank],
                out->bytes[t->rank]);
    return 0;
}

static int finish(struct transport *t, struct error *err) {
    struct over_mpi *m = mpi_of(t);
    return check(m, MPI_Waitall(m->num_pieces, m->pieces, MPI_STATUSES_IGNORE), "exchange", err);
}

/* Frees parcels that have gone; all: waits for them. */
static int collect(struct over_mpi *m, bool all, struct error *err) {
    for (struct parcel **p = &m->parcels; *p;) {
        struct parcel *done = *p;
        int gone = 1;
        const int status = all ? MPI_Wait(&done->request, MPI_STATUS_IGNORE)
                               : MPI_Test(&done->request, &gone, MPI_STATUS_IGNORE);
        if (check(m, status, "send", err)) return -1;
        if (!gone) {
            p = &done->next;
            continue;
        }
        *p = done->next;
        free(done->data);
        free(done);
    }
    return 0;
}

static int post(struct transport *t, int to, int tag, const void *data, size_t bytes,
                struct error *err) {
    struct over_mpi *m = mpi_of(t);
    if (bytes > INT_MAX) return fail(err, "a message of %zu bytes is too long for MPI", bytes);
    if (collect(m, false, err)) return -1;
    struct parcel *p = must_have(malloc(sizeof *p));
    *p = (struct parcel){m->parcels, MPI_REQUEST_NULL, must_have(malloc(bytes + 1))};
    if (bytes) memcpy(p->data, data, bytes);
    m->parcels = p;
    return check(m, MPI_Isend(p->data, (int)bytes, MPI_BYTE, to, tag, m->world, &p->request),
                 "send", err);
}

static int receive(struct transport *t, int from, int tag, void **data, struct message *out,
                   struct error *err) {
    struct over_mpi *m = mpi_of(t);
    MPI_Message message;
    MPI_Status status;
    int bytes = 0;
    if (check(
            m,
            MPI_Mprobe(from == ANY_RANK ? MPI_ANY_SOURCE : from, tag, m->world, &message, &status),
            "receive", err) ||
        check(m, MPI_Get_count(&status, MPI_BYTE, &bytes), "receive", err))
        return -1;
    *data = must_have(malloc((size_t)bytes + 1));
    *out = (struct message){status.MPI_SOURCE, (size_t)bytes};
    return check(m, MPI_Mrecv(*data, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "receive", err);
}

static void close_mpi(struct transport *t) {
    struct over_mpi *m = mpi_of(t);
    struct error err;
    collect(m, true, &err);
    free(m->pieces);
    free(m);
    MPI_Finalize();
}

static const struct transport_ops ops = {.close = close_mpi,
                                         .barrier = barrier,
                                         .start = start,
                                         .finish = finish,
                                         .send = post,
                                         .receive = receive};

/* The number of this rank's node, and of nodes. Ranks of a node must follow one another, equally many on each:
 * otherwise all count as one node. */
static int find_nodes(struct over_mpi *m, struct error *err) {
    struct transport *t = &m->transport;
    MPI_Comm node;
    int first = t->rank, size = 0;
    if (check(m, MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
              "nodes", err))
        return -1;
    MPI_Comm_size(node, &size);
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, node);
    MPI_Comm_free(&node);
    int regular = t->rank >= first && t->rank < first + size && first % size == 0, same = size,
        all = 0;
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, m->world);
    regular = regular && same == size;
    if (check(m, MPI_Allreduce(&regular, &all, 1, MPI_INT, MPI_MIN, m->world), "nodes", err))
        return -1;
    t->nodes = all ? t->ranks / size : 1;
    t->node = all ? first / size : 0;
    return 0;
}

struct transport *transport_mpi_open(int *argc, char ***argv, struct error *err) {
    int level = 0;
    if (check(NULL, MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level), "start", err))
        return NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    struct over_mpi *m = must_have(calloc(1, sizeof *m));
    struct transport *t = &m->transport;
    m->world = MPI_COMM_WORLD;
    *t = (struct transport){.ops = &ops, .name = "MPI", .phase = "the beginning"};
    MPI_Comm_rank(m->world, &t->rank);
    MPI_Comm_size(m->world, &t->ranks);
    if (find_nodes(m, err) == 0) return t;
    close_mpi(t);
    return NULL;
}
