/* SPDX-License-Identifier: MIT
 *
 * Messages between arrays in device memory, by NCCL: of an exchange, a send and a receive per pair of ranks that has
 * bytes, in one group. NCCL only copies here; its reductions add in an order of their own. What is enqueued on the
 * stream before start() comes before the exchange, and what follows it comes after. Each rank needs a device of
 * its own. Only this file calls NCCL; tests link it with a stand-in, extras/ranks/nccl/nccl_over_mpi.cpp.
 *
 * A peer that has died may leave the stream busy for ever: extras/ranks/board.h ends the run.
 */
#include <nccl.h>

#include <sched.h>
#include <stdlib.h>

#include "harness/device/device_cuda.h"
#include "harness/memory.h"
#include "extras/ranks/transport.h"

struct over_nccl {
    struct transport transport;
    ncclComm_t ranks;
    cudaStream_t stream;
};

static struct over_nccl *nccl_of(struct transport *t) {
    return (struct over_nccl *)t;
}

static int check(ncclResult_t status, const char *what, struct error *err) {
    if (status == ncclSuccess) return 0;
    return fail(err,
                "NCCL, %s: %s. NCCL_DEBUG=WARN says more; each rank needs a device of its own, and "
                "--staged goes without NCCL",
                what, ncclGetErrorString(status));
}

/* Each rank begins with the next one. A failed call leaves no group open. */
static ncclResult_t enqueue(struct over_nccl *n, const char *send, const struct parts *out,
                            char *receive, const struct parts *in) {
    const int me = n->transport.rank, ranks = n->transport.ranks;
    ncclResult_t status = ncclGroupStart();
    if (status != ncclSuccess) return status;
    for (int k = 1; k < ranks && status == ncclSuccess; k++) {
        const int from = (me + ranks - k) % ranks, to = (me + k) % ranks;
        if (in->bytes[from])
            status = ncclRecv(receive + in->at[from], in->bytes[from], ncclUint8, from, n->ranks,
                              n->stream);
        if (status == ncclSuccess && out->bytes[to])
            status =
                ncclSend(send + out->at[to], out->bytes[to], ncclUint8, to, n->ranks, n->stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return status == ncclSuccess ? ended : status;
}

static int start(struct transport *t, const void *send, const struct parts *out, void *receive,
                 const struct parts *in, struct error *err) {
    struct over_nccl *n = nccl_of(t);
    const size_t own = out->bytes[t->rank];
    if (own)
        TRY(cudaMemcpyAsync((char *)receive + in->at[t->rank],
                            (const char *)send + out->at[t->rank], own, cudaMemcpyDeviceToDevice,
                            n->stream),
            "own rows");
    return check(enqueue(n, send, out, receive, in), "exchange", err);
}

/* An error of the network shows in the communicator, while the stream may stay busy. */
static int finish(struct transport *t, struct error *err) {
    struct over_nccl *n = nccl_of(t);
    for (;;) {
        const cudaError_t busy = cudaStreamQuery(n->stream);
        ncclResult_t status = ncclSuccess;
        if (check(ncclCommGetAsyncError(n->ranks, &status), "exchange", err) ||
            check(status, "exchange", err))
            return -1;
        if (busy != cudaErrorNotReady) break;
        sched_yield();
    }
    TRY(cudaStreamSynchronize(n->stream), "exchange of rows");
    return 0;
}

static void close_nccl(struct transport *t) {
    struct over_nccl *n = nccl_of(t);
    if (n->ranks) ncclCommDestroy(n->ranks);
    if (n->stream) cudaStreamDestroy(n->stream);
    free(n);
}

static const struct transport_ops ops = {.close = close_nccl, .start = start, .finish = finish};

/* All ranks join under the number that rank 0 has drawn. */
static int join(struct over_nccl *n, struct transport *over, struct error *err) {
    ncclUniqueId id;
    int status = device_open(err);
    if (status == 0 && over->rank == 0)
        status = check(ncclGetUniqueId(&id), "the number of the ranks", err);
    if (transport_agree(over, status, err) || transport_broadcast(over, 0, &id, sizeof id, err))
        return -1;
    status = check(ncclCommInitRank(&n->ranks, over->ranks, id, over->rank), "joining ranks", err);
    if (transport_agree(over, status, err)) return -1;
    TRY(cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking), "a stream of rows");
    n->transport.stream = n->stream;
    return 0;
}

int transport_nccl_open(struct transport *t, struct error *err) {
    struct over_nccl *n = must_have(calloc(1, sizeof *n));
    n->transport = (struct transport){
        .ops = &ops, .name = "NCCL", .rank = t->rank, .ranks = t->ranks, .phase = "the beginning"};
    if (join(n, t, err)) {
        close_nccl(&n->transport);
        return -1;
    }
    t->device = &n->transport;
    return 0;
}
