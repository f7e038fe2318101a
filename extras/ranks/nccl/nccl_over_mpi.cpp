/* SPDX-License-Identifier: MIT
 *
 * A stand-in for the few calls of NCCL that the project makes: processes under mpirun, each with an emulated device. A
 * message is read, sent and written as late as NCCL may do it: when the host waits for the stream, or the stream
 * has more work. From ncclRecv() until then the destination is 0xFF bytes.
 *
 * It is stricter than NCCL. These end the process with a report: memory that is not in one allocation of the device,
 * a message outside of a group, a group within a group or without an end, streams of several kinds in one group, other
 * sizes or types at both ends, a receive without a send (after EMULATION_PATIENCE seconds, or else 20), a send
 * without a receive, a number of the ranks that rank 0 has not drawn.
 */
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <nccl.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "emulation/device_heap.h"
#include "emulation/stream.h"

struct ncclComm {
    MPI_Comm over;
    int rank, ranks;
    std::vector<long long> sent, received; /* messages, by peer */
};

namespace {

using namespace emulation;

struct Message {
    bool sends;
    char *data;
    size_t bytes;
    ncclDataType_t type;
    int peer;
    ncclComm_t comm;
    cudaStream_t stream;
};

/* What goes before the data of a message. */
struct Header {
    size_t bytes;
    ncclDataType_t type;
};

struct Parcel {
    std::vector<char> bytes;
    MPI_Request request;
};

int drawn; /* numbers of ranks, by this process */
bool grouped;
std::vector<Message> group;

void must(int status) {
    if (status != MPI_SUCCESS) fatal("NCCL's stand-in: a call of MPI fails");
}

/* Calls until it says true. Reports what is missing after a while. */
template <class Try, class Report> void wait_for(Try attempt, Report report) {
    const char *patience = getenv("EMULATION_PATIENCE");
    const double end = MPI_Wtime() + (patience ? atof(patience) : 20);
    while (!attempt()) {
        if (MPI_Wtime() > end) report();
        usleep(50);
    }
}

void check_memory(const Message &m) {
    if (heap_holds(m.data, m.bytes)) return;
    fatal("%s: %zu bytes that are not in one allocation of the device",
          m.sends ? "ncclSend" : "ncclRecv", m.bytes);
}

void post(const Message &m, Parcel *out) {
    const Header header = {m.bytes, m.type};
    check_memory(m);
    if (m.bytes > INT_MAX - sizeof header) fatal("ncclSend: the stand-in takes up to 2 GiB");
    out->bytes.resize(sizeof header + m.bytes);
    memcpy(out->bytes.data(), &header, sizeof header);
    {
        AllocationOpen open(m.data);
        memcpy(out->bytes.data() + sizeof header, m.data, m.bytes);
    }
    must(MPI_Isend(out->bytes.data(), (int)out->bytes.size(), MPI_BYTE, m.peer, 0, m.comm->over,
                   &out->request));
    m.comm->sent[(size_t)m.peer]++;
}

void receive(const Message &m) {
    MPI_Message found;
    MPI_Status status;
    int come = 0, bytes = 0;
    check_memory(m);
    wait_for(
        [&] { return must(MPI_Improbe(m.peer, 0, m.comm->over, &come, &found, &status)), come; },
        [&] {
            fatal("ncclRecv: rank %d waits for %zu bytes from rank %d, which sends none",
                  m.comm->rank, m.bytes, m.peer);
        });
    must(MPI_Get_count(&status, MPI_BYTE, &bytes));
    std::vector<char> came((size_t)bytes);
    must(MPI_Mrecv(came.data(), bytes, MPI_BYTE, &found, MPI_STATUS_IGNORE));
    Header header;
    memcpy(&header, came.data(), sizeof header);
    if (header.bytes != m.bytes || header.type != m.type)
        fatal("ncclRecv: rank %d waits for %zu bytes of type %d from rank %d, which sends %zu of "
              "type %d",
              m.comm->rank, m.bytes, (int)m.type, m.peer, header.bytes, (int)header.type);
    AllocationOpen open(m.data);
    memcpy(m.data, came.data() + sizeof header, m.bytes);
    m.comm->received[(size_t)m.peer]++;
}

void exchange(const std::vector<Message> &messages) {
    std::vector<Parcel> parcels(messages.size());
    for (size_t i = 0; i < messages.size(); i++)
        if (messages[i].sends) post(messages[i], &parcels[i]);
    for (const Message &m : messages)
        if (!m.sends) receive(m);
    for (size_t i = 0; i < messages.size(); i++) {
        if (!messages[i].sends) continue;
        int gone = 0;
        wait_for(
            [&] { return must(MPI_Test(&parcels[i].request, &gone, MPI_STATUS_IGNORE)), gone; },
            [&] {
                fatal("ncclSend: rank %d sends %zu bytes to rank %d, which does not receive them",
                      messages[i].comm->rank, messages[i].bytes, messages[i].peer);
            });
    }
}

ncclResult_t add(const Message &m) {
    const char *call = m.sends ? "ncclSend" : "ncclRecv";
    if (!grouped) fatal("%s: outside of a group", call);
    if (m.peer < 0 || m.peer >= m.comm->ranks || m.peer == m.comm->rank)
        fatal("%s: rank %d is not another rank", call, m.peer);
    if (m.bytes == 0) fatal("%s: no bytes", call);
    if (m.type != ncclUint8 && m.type != ncclInt8) fatal("%s: unknown type %d", call, (int)m.type);
    if (!group.empty() && (m.stream != group[0].stream || m.comm != group[0].comm))
        fatal("%s: another stream, or other ranks, than the group so far", call);
    check_memory(m);
    group.push_back(m);
    return ncclSuccess;
}

} // namespace

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess              ? "no error"
           : result == ncclUnhandledCudaError ? "unhandled cuda error"
                                              : "invalid usage";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%ld %d", (long)getpid(), ++drawn);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    auto *c = new ncclComm{};
    must(MPI_Comm_dup(MPI_COMM_WORLD, &c->over));
    MPI_Comm_rank(c->over, &c->rank);
    MPI_Comm_size(c->over, &c->ranks);
    if (c->rank != rank || c->ranks != ranks)
        fatal("ncclCommInitRank: rank %d of %d, but %d of %d of mpirun", rank, ranks, c->rank,
              c->ranks);
    ncclUniqueId first = id;
    int all = 0;
    must(MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, c->over));
    must(MPI_Allreduce(&drawn, &all, 1, MPI_INT, MPI_SUM, c->over));
    if (memcmp(&first, &id, sizeof id) || all != 1)
        fatal("ncclCommInitRank: rank %d has another number of the ranks than rank 0, or it was "
              "drawn %d times",
              rank, all);
    c->sent.resize((size_t)ranks);
    c->received.resize((size_t)ranks);
    *comm = c;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *error) {
    *error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    if (grouped) fatal("ncclCommDestroy: a group has no end");
    std::vector<long long> theirs(c->sent.size());
    must(MPI_Alltoall(c->sent.data(), 1, MPI_LONG_LONG, theirs.data(), 1, MPI_LONG_LONG, c->over));
    for (int r = 0; r < c->ranks; r++)
        if (theirs[(size_t)r] != c->received[(size_t)r])
            fatal("ncclCommDestroy: rank %d has received %lld of %lld messages from rank %d",
                  c->rank, c->received[(size_t)r], theirs[(size_t)r], r);
    MPI_Comm_free(&c->over);
    delete c;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    if (grouped) fatal("ncclGroupStart: the group before has no end");
    grouped = true;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (!grouped) fatal("ncclGroupEnd: no group has begun");
    grouped = false;
    auto messages = std::move(group);
    group.clear();
    if (messages.empty()) return ncclSuccess;
    cudaError_t error = submit_late(messages[0].stream, [messages] { exchange(messages); });
    return error ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return add(
        {true, static_cast<char *>(const_cast<void *>(data)), count, type, peer, comm, stream});
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    add({false, static_cast<char *>(data), count, type, peer, comm, stream});
    AllocationOpen open(data);
    memset(data, 0xff, count);
    return ncclSuccess;
}
