/* SPDX-License-Identifier: MIT
 *
 * The workers of a parameter server. The rows of a batch, each once, make small tables, on which kernels work: rows are
 * numbered in the order in which the lookups first name them. Behind them each table has a row of zeros, for padding
 * that is not in the batch. Rows that are refused become padding. A worker has four bytes for each row of all tables.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/batch_fill.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"
#include "extras/ranks/server_parts.h"

/* A message to a server, while it is made. */
struct letter {
    struct room room;
    size_t bytes;
    int64_t *count, *rows; /* in the room; rows: the next one's place */
    float *values;
};

/* A row that is pulled. */
struct pulled {
    int64_t row;
    int32_t table;
    bool admitted;
};

struct worker {
    struct transport *transport;
    const struct server_setup *setup;
    struct letter *letters; /* [servers] */
    int64_t *versions;      /* [servers] at the last pull */
    int64_t *first;         /* [num_tables + 1] the first pulled row of each table */
    int32_t *
        slot; /* [rows of all tables] 1 + the number of a row that is pulled, in its small table; 0: it is not */
    struct batch local;
    struct table_shape *shapes;
    struct table *tables;
    struct feature *features;
    struct room pulled, ids, weights, output, gradient, scratch;
    struct worker_report report;
};

int worker_open(struct worker **out, struct transport *t, const struct server_setup *setup,
                struct error *err) {
    struct worker *w = must_have(calloc(1, sizeof *w));
    const size_t tables = (size_t)setup->num_tables;
    size_t rows = 0;
    *out = w;
    w->transport = t;
    w->setup = setup;
    w->versions = must_have(calloc((size_t)t->ranks, sizeof *w->versions));
    w->letters = must_have(calloc((size_t)t->ranks, sizeof *w->letters));
    w->first = must_have(calloc(tables + 1, sizeof *w->first));
    w->shapes = must_have(calloc(tables, sizeof *w->shapes));
    w->tables = must_have(calloc(tables, sizeof *w->tables));
    for (size_t i = 0; i < tables; i++) rows += (size_t)setup->shapes[i].rows;
    w->slot = must_have(calloc(rows, sizeof *w->slot));
    return server_check(t, setup, err);
}

void worker_close(struct worker *w) {
    struct room *const rooms[] = {&w->pulled, &w->ids,      &w->weights,
                                  &w->output, &w->gradient, &w->scratch};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]->data);
    for (int s = 0; s < w->transport->ranks; s++) free(w->letters[s].room.data);
    free(w->letters);
    free(w->versions);
    free(w->first);
    free(w->slot);
    free(w->shapes);
    free(w->tables);
    free(w->features);
    free(w);
}

struct worker_report worker_report(const struct worker *w) {
    return w->report;
}

/* --- messages */

static int server_of(const struct worker *w, const struct pulled *row) {
    return (int)(row->row % w->setup->servers);
}

/* Letters with a head and `count` pulled rows, table after table. numbers: which ones; NULL: the first. Leaves a
 * place for the gradient rows of a push. */
static void begin_letters(struct worker *w, enum request_kind kind, const int64_t *numbers,
                          int64_t count) {
    const int32_t tables = w->setup->num_tables;
    const struct pulled *rows = w->pulled.data;
    int64_t *of = must_have(calloc((size_t)(w->setup->servers * tables), sizeof *of));
    for (int64_t i = 0; i < count; i++) {
        const struct pulled *x = &rows[numbers ? numbers[i] : i];
        of[server_of(w, x) * tables + x->table]++;
    }
    for (int s = 0; s < w->setup->servers; s++) {
        struct letter *l = &w->letters[s];
        const int64_t *counts = of + s * tables;
        int64_t all = 0, floats = 0;
        for (int32_t t = 0; t < tables; t++) {
            all += counts[t];
            floats += kind == REQUEST_PUSH ? counts[t] * w->setup->shapes[t].dim : 0;
        }
        l->bytes = sizeof(struct request_head) + (size_t)(tables + all) * sizeof *l->rows +
                   (size_t)floats * sizeof *l->values;
        struct request_head *head = room_for(&l->room, l->bytes);
        *head = (struct request_head){kind, w->report.clocks, w->versions[s]};
        l->count = memcpy(head + 1, counts, (size_t)tables * sizeof *counts);
        l->rows = l->count + tables;
        l->values = (float *)(l->rows + all);
    }
    for (int64_t i = 0; i < count; i++) {
        const struct pulled *x = &rows[numbers ? numbers[i] : i];
        *w->letters[server_of(w, x)].rows++ = x->row / w->setup->servers;
    }
    free(of);
}

static int send_letters(struct worker *w, enum channel channel, struct error *err) {
    w->transport->channel = channel;
    for (int s = 0; s < w->setup->servers; s++)
        if (transport_send(w->transport, s, TAG_REQUEST, w->letters[s].room.data,
                           w->letters[s].bytes, err))
            return -1;
    return 0;
}

/* Waits for the rows of a server, and puts them into the small tables. They come in the order in which they were asked
 * for. */
static int take_rows(struct worker *w, int server, struct error *err) {
    struct message message;
    void *data;
    if (transport_receive(w->transport, server, TAG_ANSWER, &data, &message, err)) return -1;
    const struct answer_head *head = data;
    const float *from = (const float *)(head + 1);
    int64_t floats = 0;
    for (int32_t t = 0; t < w->setup->num_tables; t++)
        floats += w->letters[server].count[t] * w->shapes[t].dim;
    const uint8_t *admitted = (const uint8_t *)(from + floats);
    struct pulled *rows = w->pulled.data;
    for (int64_t i = 0; i < w->first[w->setup->num_tables]; i++) {
        struct pulled *x = &rows[i];
        if (server_of(w, x) != server) continue;
        const int32_t dim = w->shapes[x->table].dim;
        memcpy(array_row(&w->tables[x->table].weight, i - w->first[x->table]), from,
               (size_t)dim * sizeof *from);
        from += dim;
        x->admitted = *admitted++;
    }
    w->versions[server] = head->version;
    free(data);
    return 0;
}

/* --- the local batch */

/* Pads with the padding's own row if that is pulled, since a sequence shows it. */
static int64_t padding_of(const struct worker *w, const struct batch *in, int32_t f) {
    const struct feature *x = &in->features[f];
    const int32_t slot =
        x->padding_id < 0 ? 0 : w->slot[in->tables[x->table].first_row + x->padding_id];
    return slot ? slot - 1 : w->first[x->table + 1] - w->first[x->table];
}

/* Numbers the rows of all lookups, and makes ids and features of the local batch; rows are refused later. */
static void number_rows(struct worker *w, const struct batch *in) {
    const size_t features = (size_t)in->num_features;
    struct pulled *rows = room_for(&w->pulled, (size_t)(in->lookups + 1) * sizeof *rows);
    int32_t *ids = room_for(&w->ids, (size_t)(in->lookups + 1) * sizeof *ids);
    int64_t count = 0;
    free(w->features);
    w->features = must_have(calloc(features, sizeof *w->features));
    memcpy(w->features, in->features, features * sizeof *w->features);
    for (int32_t t = 0; t < in->num_tables; t++) {
        int32_t *slots = w->slot + in->tables[t].first_row;
        w->first[t] = count;
        for (int32_t f = 0; f < in->num_features; f++) {
            const struct feature *x = &in->features[f];
            const int64_t end = x->table == t ? x->first_lookup + x->lookups : 0;
            for (int64_t i = x->first_lookup; i < end; i++) {
                const int64_t row = batch_id(in, i);
                if (!slots[row]) {
                    rows[count++] = (struct pulled){.row = row, .table = t};
                    slots[row] = (int32_t)(count - w->first[t]);
                }
                ids[i] = slots[row] - 1;
            }
        }
    }
    w->first[in->num_tables] = count;
    for (int32_t f = 0; f < in->num_features; f++) w->features[f].padding_id = padding_of(w, in, f);
    for (int64_t i = 0; i < count; i++)
        w->slot[in->tables[rows[i].table].first_row + rows[i].row] = 0;
}

/* Memory of the small tables, with a row of zeros behind each. */
static void make_tables(struct worker *w) {
    size_t bytes = 0;
    for (int32_t t = 0; t < w->setup->num_tables; t++) {
        w->shapes[t] = (struct table_shape){.rows = w->first[t + 1] - w->first[t] + 1,
                                            .dim = w->setup->shapes[t].dim,
                                            .rule = RULE_sgd};
        bytes += (table_memory_bytes(&w->shapes[t], TABLE_WEIGHT) + 63) / 64 * 64;
    }
    char *at = room_for(&w->weights, bytes + 64);
    for (int32_t t = 0; t < w->setup->num_tables; t++) {
        const struct table_shape *shape = &w->shapes[t];
        void *memory[TABLE_ARRAYS] = {at};
        w->tables[t] = table_in(shape, memory);
        memset(array_row(&w->tables[t].weight, shape->rows - 1), 0,
               (size_t)shape->dim * sizeof(float));
        at += (table_memory_bytes(shape, TABLE_WEIGHT) + 63) / 64 * 64;
    }
}

static void make_batch(struct worker *w, const struct batch *in) {
    const struct pulled *rows = w->pulled.data;
    int32_t *ids = w->ids.data;
    for (int32_t f = 0; f < in->num_features; f++)
        for (int64_t k = 0; k < in->features[f].lookups; k++) {
            const struct feature *x = &w->features[f];
            const int64_t i = in->features[f].first_lookup + k;
            const bool counts = ids[i] != x->padding_id,
                       refused = counts && !rows[w->first[x->table] + ids[i]].admitted;
            w->report.lookups += counts;
            w->report.refused += refused;
            if (refused) ids[i] = (int32_t)x->padding_id;
        }
    w->local = *in;
    w->local.tables = w->shapes;
    w->local.features = w->features;
    w->local.id_type = ID_INT32;
    w->local.ids = ids;
    w->local.grad = NULL;
    w->local.winners = NULL;
    batch_derive(&w->local, w->shapes, w->features);
}

/* --- a clock */

/* room_for() aligns to 64. */
static void *aligned_room(struct room *room, size_t bytes) {
    char *at = room_for(room, bytes + KERNEL_ALIGN);
    return at + (KERNEL_ALIGN - (uintptr_t)at % KERNEL_ALIGN) % KERNEL_ALIGN;
}

static int run(struct worker *w, const struct kernel *k, struct launch how, struct error *err) {
    const char *refused = kernel_refuses(k, &w->local);
    if (refused) return fail(err, "%s: %s", k->name, refused);
    how.threads = w->setup->threads;
    if (k->scratch_bytes)
        how.scratch = aligned_room(&w->scratch, k->scratch_bytes(&w->local, how.threads));
    if ((k->plan && k->plan(&w->local, &how)) || k->run(&w->local, NULL, w->tables, &how))
        return fail(err, "%s failed", k->name);
    return 0;
}

/* Sends the entries of a merged gradient to the servers of their rows. */
static int send_gradient(struct worker *w, const struct sparse_gradient *of, struct error *err) {
    const int32_t tables = w->setup->num_tables;
    const struct pulled *rows = w->pulled.data;
    int64_t count = 0, *numbers = must_have(calloc((size_t)w->first[tables] + 1, sizeof *numbers));
    for (int32_t t = 0; t < tables; t++)
        for (int64_t k = 0; k < *of[t].count; k++) numbers[count++] = w->first[t] + of[t].rows[k];
    begin_letters(w, REQUEST_PUSH, numbers, count);
    const int64_t *next = numbers;
    for (int32_t t = 0; t < tables; t++)
        for (int64_t k = 0; k < *of[t].count; k++) {
            struct letter *l = &w->letters[server_of(w, &rows[*next++])];
            const int64_t dim = w->shapes[t].dim;
            memcpy(l->values, of[t].values + k * dim, (size_t)dim * sizeof *l->values);
            l->values += dim;
        }
    free(numbers);
    w->report.pushed += count;
    return send_letters(w, CHANNEL_GRADIENT, err);
}

static int push(struct worker *w, struct error *err) {
    transport_phase(w->transport, "pushing gradients");
    struct sparse_gradient *of = must_have(calloc((size_t)w->setup->num_tables, sizeof *of));
    void *output = aligned_room(&w->gradient, gradient_lay_out(&w->local, true, NULL, NULL));
    gradient_lay_out(&w->local, true, output, of);
    int status = run(w, w->setup->gradient, (struct launch){.output = output}, err);
    if (status == 0) status = send_gradient(w, of, err);
    free(of);
    return status;
}

static int pull(struct worker *w, const struct batch *in, struct error *err) {
    transport_phase(w->transport, "pulling rows");
    number_rows(w, in);
    make_tables(w);
    begin_letters(w, REQUEST_PULL, NULL, w->first[in->num_tables]);
    if (send_letters(w, CHANNEL_IDS, err)) return -1;
    for (int s = 0; s < w->setup->servers; s++)
        if (take_rows(w, s, err)) return -1;
    make_batch(w, in);
    return 0;
}

int worker_clock(struct worker *w, const struct batch *in, worker_gradient *gradient, void *ctx,
                 struct error *err) {
    if (pull(w, in, err)) return -1;
    transport_phase(w->transport, "computing a gradient");
    int32_t *winners;
    void *rows = aligned_room(&w->output, forward_lay_out(&w->local, NULL, &winners) +
                                              (size_t)w->local.grad_elements * sizeof *winners);
    forward_lay_out(&w->local, rows, &winners);
    if (run(w, w->setup->forward, (struct launch){.output = rows, .winners = winners}, err))
        return -1;
    gradient(ctx, &w->local, rows);
    w->local.grad = rows;
    w->local.winners = winners;
    if (push(w, err)) return -1;
    w->report.clocks++;
    return 0;
}

int worker_end(struct worker *w, struct error *err) {
    begin_letters(w, REQUEST_END, NULL, 0);
    return send_letters(w, CHANNEL_CONTROL, err);
}
