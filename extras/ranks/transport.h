/* SPDX-License-Identifier: MIT
 *
 * Messages between ranks. A rank is a process (MPI), or a thread (in tests), and has memory of its own. Every call
 * counts the bytes that it moves between ranks.
 *
 * All ranks make the same collective calls in the same order. Counts and places are bytes, as size_t; a
 * message of 0 bytes is not sent. What a rank sends to itself is copied, and counted apart.
 *
 * Nothing here adds floats. Reductions of MPI and NCCL round in an order that depends on the size of the
 * message and the number of ranks, so ranks exchange the parts and add them in the order of the ranks:
 * transport_reduce_scatter().
 *
 * Functions return 0, or -1 and fill err. After an error the transport is dead: so is the run.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "harness/error.h"
#include "kernels/kernel.h"

enum { ANY_RANK = -1 };

/* Exit status of a program: a rank died, stopped answering, failed in an exchange, or is out of memory. */
enum { EXIT_LOST = 4 };

/* Bytes are counted by purpose. */
enum channel {
    CHANNEL_CONTROL, /* commands, results, set-up: not part of a step */
    CHANNEL_LENGTHS, /* lookups of bags */
    CHANNEL_IDS,     /* and per-sample weights */
    CHANNEL_OUTPUT,  /* of the forward */
    CHANNEL_GRADIENT,
    CHANNEL_WEIGHT, /* parts of weights: ZeRO */
    CHANNELS
};

struct transport_bytes {
    int64_t sent, received, kept; /* kept: of a rank to itself */
    int64_t messages;             /* sent to other ranks */
};

/* An all-to-all: part r goes to, or comes from, rank r. */
struct parts {
    size_t *bytes, *at; /* [ranks] */
};

/* A message that was received. */
struct message {
    int from;
    size_t bytes;
};

struct transport;

struct transport_ops {
    void (*close)(struct transport *t);
    int (*barrier)(struct transport *t, struct error *err);
    /* Begins an exchange; finish() waits for it. One at a time is under way. */
    int (*start)(struct transport *t, const void *send, const struct parts *out, void *receive,
                 const struct parts *in, struct error *err);
    int (*finish)(struct transport *t, struct error *err);
    /* send() may return before the message is received: it has a copy. */
    int (*send)(struct transport *t, int to, int tag, const void *data, size_t bytes,
                struct error *err);
    /* Waits for the next message with this tag; from may be ANY_RANK. *data: malloc'ed. */
    int (*receive)(struct transport *t, int from, int tag, void **data, struct message *out,
                   struct error *err);
    /* Ends the other ranks too, soon, as if this one died. NULL where ranks are processes. */
    void (*abort)(struct transport *t, int status);
};

struct transport {
    const struct transport_ops *ops;
    const char *name; /* "threads", "MPI" */
    int rank, ranks;
    int node, nodes; /* of this rank; ranks of a node follow one another, equally many on each */
    enum channel channel; /* of the calls that come */
    struct transport_bytes bytes[CHANNELS];
    const char *phase; /* what the rank does now, for a message if it stops; never NULL */
    /* Between arrays in device memory; its start() and finish() enqueue on its stream. NULL: not open. */
    struct transport *device;
    void *stream;                                               /* of such a transport */
    int (*open_device)(struct transport *t, struct error *err); /* opens it; NULL: there is none */
};

/* The rank begins to do something else. */
void transport_phase(struct transport *t, const char *phase);

/* --- counted calls */

int transport_barrier(struct transport *t, struct error *err);
int transport_start(struct transport *t, const void *send, const struct parts *out, void *receive,
                    const struct parts *in, struct error *err);
int transport_finish(struct transport *t, struct error *err);
/* Exchange arrays in device memory, in the order of t->device->stream; the second call waits for the stream. t counts
 * the bytes. */
int transport_device_start(struct transport *t, const void *send, const struct parts *out,
                           void *receive, const struct parts *in, struct error *err);
int transport_device_finish(struct transport *t, struct error *err);
/* For a rank that fails while the others wait for it: says why in one line, unless another rank of the node does, and
 * ends its process, and so the run. */
void transport_give_up(const struct transport *t, const struct error *err)
    __attribute__((noreturn));
/* Both, one after the other. */
int transport_exchange(struct transport *t, const void *send, const struct parts *out,
                       void *receive, const struct parts *in, struct error *err);
int transport_send(struct transport *t, int to, int tag, const void *data, size_t bytes,
                   struct error *err);
int transport_receive(struct transport *t, int from, int tag, void **data, struct message *out,
                      struct error *err);

/* --- made of those */

/* [ranks] of both, zeroed; freed with parts_free(). Ends the program when out of memory. */
struct parts parts_make(int ranks);
void parts_free(struct parts *p);
/* Sets the places so that the parts are contiguous, each at a multiple of `align`; returns the bytes of all. */
size_t parts_lay_out(struct parts *p, int ranks, size_t align);

/* Copies rank root's bytes to all ranks. */
int transport_broadcast(struct transport *t, int root, void *data, size_t bytes, struct error *err);

/* Rank r's `bytes` bytes to all + r*bytes, on all ranks. */
int transport_all_gather(struct transport *t, const void *own, size_t bytes, void *all,
                         struct error *err);

/* Bytes begin[r] .. begin[r+1]-1 of `all` come from rank r, on all ranks. own: this rank's, which may lie at their
 * place in `all`. begin: [ranks + 1], the same on all ranks. */
int transport_gather(struct transport *t, const void *own, const size_t *begin, void *all,
                     struct error *err);

/* The sum over ranks of elements begin[r] .. begin[r+1]-1 of `data`, on rank r: in sum[0 ..], which may lie at
 * their place in data. Sums are in fp32, in the order of the ranks. begin: [ranks + 1], the same on all ranks. A block
 * of elements is exchanged at a time, so its memory does not grow with the data. */
int transport_reduce_scatter(struct transport *t, const float *data, const int64_t *begin,
                             float *sum, struct error *err);

/* The largest of all ranks' numbers, for each of `count`, on all ranks. */
int transport_most(struct transport *t, double *numbers, int count, struct error *err);

/* All ranks learn if one of them has failed: status 0 if none has, otherwise -1, and err has the message of
 * the first one, with its number and phase. */
int transport_agree(struct transport *t, int status, struct error *err);

/* --- kinds */

/* Runs `of` on `ranks` threads, each a rank with a transport of its own, and waits for all. nodes divides
 * ranks. shuffle: 0, or a seed of the order in which messages are delivered. Returns 0 if all returned
 * 0; otherwise the first one's status. */
int transport_threads(int ranks, int nodes, uint64_t shuffle,
                      int (*of)(struct transport *t, void *ctx), void *ctx);

/* The ranks that mpirun has started. Fails if MPI does not start. Programs that use it link with MPI. */
struct transport *transport_mpi_open(int *argc, char ***argv, struct error *err);

/* Opens t->device: NCCL, between one device per rank. Programs that use it link with NCCL. Collective. */
int transport_nccl_open(struct transport *t, struct error *err);
