/* SPDX-License-Identifier: MIT
 *
 * Two ranks send each other a message through NCCL's stand-in, rightly or with one defect: the word
 * that is given. tests/ranks/test_ranks_device_mpi.py starts it. Exit status: 0 fine, 1 the
 * stand-in is wrong, 86 it has found a defect.
 */
#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/transport.h"

enum { BYTES = 1000 };

static int wrong(const char *what) {
    fprintf(stderr, "nccl_misuse: %s\n", what);
    exit(1);
}

static char first_byte(const char *there) {
    char byte = 0;
    if (cudaMemcpy(&byte, there, 1, cudaMemcpyDeviceToHost)) wrong("no copy");
    return byte;
}

int main(int argc, char **argv) {
    struct error err;
    struct transport *t = transport_mpi_open(&argc, &argv, &err);
    const char *defect = argc > 1 ? argv[1] : "";
    if (!t || t->ranks != 2) wrong("needs two ranks");
#define IS(word) (strcmp(defect, word) == 0)
    const int me = t->rank, peer = 1 - me;
    char host[BYTES], *send, *receive;
    ncclUniqueId id;
    ncclComm_t ranks;
    cudaStream_t stream = NULL;
    if (me == 0 || IS("two numbers")) ncclGetUniqueId(&id);
    if (!IS("two numbers") && transport_broadcast(t, 0, &id, sizeof id, &err)) wrong(err.text);
    ncclCommInitRank(&ranks, 2, id, me);
    memset(host, 'a' + me, BYTES);
    if (cudaMalloc((void **)&send, BYTES) || cudaMalloc((void **)&receive, BYTES) ||
        cudaStreamCreate(&stream) || cudaMemcpy(send, host, BYTES, cudaMemcpyHostToDevice))
        wrong("no device");
    const size_t bytes = IS("sizes") && me ? BYTES - 1 : BYTES;
    if (!IS("no group")) ncclGroupStart();
    if (!IS("no send") || me)
        ncclSend(IS("host memory") ? host : send, bytes, ncclUint8, peer, ranks, stream);
    if (!IS("no receive") || me)
        ncclRecv(IS("past the end") ? receive + 1 : receive, BYTES, ncclUint8, peer, ranks, stream);
    if (!IS("no end")) ncclGroupEnd();
    if (first_byte(receive) != (char)0xff) wrong("there before the stream was waited for");
    if (cudaStreamSynchronize(stream)) wrong("no wait");
    if (!IS("no end") && !IS("no receive") && first_byte(receive) != 'a' + peer)
        wrong("another message");
    ncclCommDestroy(ranks);
    t->ops->close(t);
    return 0;
}
