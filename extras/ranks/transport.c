/* SPDX-License-Identifier: MIT */
#include "extras/ranks/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extras/ranks/board.h"
#include "harness/memory.h"
#include "kernels/shape.h"

enum { BLOCK = 1 << 16 /* elements of a sum */ };

void transport_phase(struct transport *t, const char *phase) {
    t->phase = phase;
    board_show(phase);
}

int transport_barrier(struct transport *t, struct error *err) {
    board_waits();
    const int status = t->ops->barrier(t, err);
    board_waits();
    return status;
}

static void count_parts(struct transport *t, const struct parts *out, const struct parts *in) {
    struct transport_bytes *b = &t->bytes[t->channel];
    for (int r = 0; r < t->ranks; r++) {
        if (r == t->rank) {
            b->kept += (int64_t)out->bytes[r];
            continue;
        }
        b->sent += (int64_t)out->bytes[r];
        b->received += (int64_t)in->bytes[r];
        b->messages += out->bytes[r] > 0;
    }
}

int transport_start(struct transport *t, const void *send, const struct parts *out, void *receive,
                    const struct parts *in, struct error *err) {
    count_parts(t, out, in);
    return t->ops->start(t, send, out, receive, in, err);
}

static int finish(struct transport *by, struct error *err) {
    board_waits();
    const int status = by->ops->finish(by, err);
    board_waits();
    return status;
}

int transport_finish(struct transport *t, struct error *err) {
    return finish(t, err);
}

int transport_device_start(struct transport *t, const void *send, const struct parts *out,
                           void *receive, const struct parts *in, struct error *err) {
    count_parts(t, out, in);
    return t->device->ops->start(t->device, send, out, receive, in, err);
}

int transport_device_finish(struct transport *t, struct error *err) {
    return finish(t->device, err);
}

void transport_give_up(const struct transport *t, const struct error *err) {
    if (board_first_to_explain())
        fprintf(stderr, "ranks: rank %d, %s: %s\n", t->rank, t->phase, err->text);
    fflush(stdout);
    _exit(EXIT_LOST); /* mpirun ends the others; after MPI_Abort() it may add lines of its own */
}

int transport_exchange(struct transport *t, const void *send, const struct parts *out,
                       void *receive, const struct parts *in, struct error *err) {
    return transport_start(t, send, out, receive, in, err) || transport_finish(t, err) ? -1 : 0;
}

int transport_send(struct transport *t, int to, int tag, const void *data, size_t bytes,
                   struct error *err) {
    struct transport_bytes *b = &t->bytes[t->channel];
    if (to == t->rank)
        b->kept += (int64_t)bytes;
    else
        b->sent += (int64_t)bytes, b->messages++;
    return t->ops->send(t, to, tag, data, bytes, err);
}

int transport_receive(struct transport *t, int from, int tag, void **data, struct message *out,
                      struct error *err) {
    board_waits();
    const int status = t->ops->receive(t, from, tag, data, out, err);
    board_waits();
    if (status) return -1;
    if (out->from != t->rank) t->bytes[t->channel].received += (int64_t)out->bytes;
    return 0;
}

struct parts parts_make(int ranks) {
    return (struct parts){must_have(calloc((size_t)ranks, sizeof(size_t))),
                          must_have(calloc((size_t)ranks, sizeof(size_t)))};
}

void parts_free(struct parts *p) {
    free(p->bytes);
    free(p->at);
    *p = (struct parts){NULL, NULL};
}

size_t parts_lay_out(struct parts *p, int ranks, size_t align) {
    size_t all = 0;
    for (int r = 0; r < ranks; r++) {
        p->at[r] = all;
        all += (p->bytes[r] + align - 1) / align * align;
    }
    return all;
}

int transport_broadcast(struct transport *t, int root, void *data, size_t bytes,
                        struct error *err) {
    struct parts out = parts_make(t->ranks), in = parts_make(t->ranks);
    for (int r = 0; t->rank == root && r < t->ranks; r++) out.bytes[r] = r == root ? 0 : bytes;
    if (t->rank != root) in.bytes[root] = bytes;
    const int status = transport_exchange(t, data, &out, data, &in, err);
    parts_free(&out);
    parts_free(&in);
    return status;
}

int transport_gather(struct transport *t, const void *own, const size_t *begin, void *all,
                     struct error *err) {
    struct parts out = parts_make(t->ranks), in = parts_make(t->ranks);
    for (int r = 0; r < t->ranks; r++) {
        out.bytes[r] = begin[t->rank + 1] - begin[t->rank];
        in.bytes[r] = begin[r + 1] - begin[r];
        in.at[r] = begin[r];
    }
    if (own == (char *)all + begin[t->rank]) out.bytes[t->rank] = in.bytes[t->rank] = 0;
    const int status = transport_exchange(t, own, &out, all, &in, err);
    parts_free(&out);
    parts_free(&in);
    return status;
}

int transport_all_gather(struct transport *t, const void *own, size_t bytes, void *all,
                         struct error *err) {
    size_t *begin = must_have(calloc((size_t)t->ranks + 1, sizeof *begin));
    for (int r = 1; r <= t->ranks; r++) begin[r] = (size_t)r * bytes;
    const int status = transport_gather(t, own, begin, all, err);
    free(begin);
    return status;
}

/* Elements at .. at+BLOCK-1 of the part of rank r: how many there are. */
static int64_t in_block(const int64_t *begin, int r, int64_t at) {
    return max64(0, min64(begin[r + 1] - begin[r] - at, BLOCK));
}

int transport_reduce_scatter(struct transport *t, const float *data, const int64_t *begin,
                             float *sum, struct error *err) {
    struct parts out = parts_make(t->ranks), in = parts_make(t->ranks);
    const int64_t element = sizeof *data;
    int64_t most = 0;
    for (int r = 0; r < t->ranks; r++) most = max64(most, begin[r + 1] - begin[r]);
    float *parts = must_have(malloc((size_t)(t->ranks * min64(most, BLOCK) * element) + 1));
    int status = 0;
    for (int64_t at = 0; status == 0 && at < most; at += BLOCK) {
        const int64_t own = in_block(begin, t->rank, at);
        for (int r = 0; r < t->ranks; r++) {
            out.bytes[r] = (size_t)(in_block(begin, r, at) * element);
            out.at[r] = (size_t)((begin[r] + at) * element);
            in.bytes[r] = (size_t)(own * element);
        }
        parts_lay_out(&in, t->ranks, 1);
        status = transport_exchange(t, data, &out, parts, &in, err);
        for (int64_t i = 0; status == 0 && i < own; i++) {
            float s = parts[i];
            for (int r = 1; r < t->ranks; r++) s += parts[r * own + i];
            sum[at + i] = s;
        }
    }
    free(parts);
    parts_free(&out);
    parts_free(&in);
    return status;
}

int transport_most(struct transport *t, double *numbers, int count, struct error *err) {
    double *all = must_have(calloc((size_t)(t->ranks * count) + 1, sizeof *all));
    const int status = transport_all_gather(t, numbers, (size_t)count * sizeof *all, all, err);
    for (int i = 0; status == 0 && i < t->ranks * count; i++)
        if (all[i] > numbers[i % count]) numbers[i % count] = all[i];
    free(all);
    return status;
}

int transport_agree(struct transport *t, int status, struct error *err) {
    struct verdict {
        int failed;
        char phase[40];
        struct error why;
    } own = {.failed = status != 0}, *all = must_have(calloc((size_t)t->ranks, sizeof *all));
    const enum channel channel = t->channel;
    if (status) own.why = *err;
    snprintf(own.phase, sizeof own.phase, "%s", t->phase);
    int first = -1;
    t->channel = CHANNEL_CONTROL;
    const int lost = transport_all_gather(t, &own, sizeof own, all, err);
    t->channel = channel;
    if (lost == 0) {
        for (int r = t->ranks; r-- > 0;)
            if (all[r].failed) first = r;
        if (first >= 0) {
            const bool memory = all[first].why.memory;
            (memory ? fail_memory : fail)(err, "rank %d, %s: %.450s", first, all[first].phase,
                                          all[first].why.text);
        }
        status = first >= 0 ? -1 : 0;
    } else
        status = -1;
    free(all);
    return status;
}
