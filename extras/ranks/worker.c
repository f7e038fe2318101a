/* SPDX-License-Identifier: MIT
 *
 * The workers of a parameter server. The rows of a batch, each once, make small tables: their rows are numbered in
 * the order in which the lookups first name them. Kernels work on those. Behind them each feature has a row for its
 * padding, which refused rows become too.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/batch_fill.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"
#include "extras/ranks/server_parts.h"

/* A row of a table, and where it lies. */
struct pulled {
    int64_t row, in_shard;
    int32_t table, shard; /* shard: of all servers */
    int32_t slot;         /* row of the small table */
    bool admitted;
};

/* A message to a server, while it is made. */
struct letter {
    struct room room;
    int64_t *count; /* [shards of the server] in the room */
    size_t bytes;
};

struct worker {
    struct transport *transport;
    const struct server_setup *setup;
    uint64_t fingerprint;
    struct sharding sharding;
    int32_t *home;          /* [num_tables] the shard of a table that is whole, or -1 */
    int64_t *versions;      /* [servers] */
    struct letter *letters; /* [servers] */
    struct batch local;
    struct table_shape *shapes;
    struct table *tables;
    struct feature *features;
    int64_t
        *padding_row; /* [num_features] a pulled row: what a sequence has for padding; -1: none */
    int32_t num_features;
    int64_t rows; /* pulled, of all tables */
    struct room pulled, map, ids, weights, output, gradient, scratch, of_slot;
    struct worker_report report;
};

int worker_open(struct worker **out, struct transport *t, const struct server_setup *setup,
                struct error *err) {
    struct worker *w = must_have(calloc(1, sizeof *w));
    const size_t tables = (size_t)setup->num_tables;
    *out = w;
    w->transport = t;
    w->setup = setup;
    w->fingerprint = server_fingerprint(setup);
    w->versions = must_have(calloc((size_t)setup->servers + 1, sizeof *w->versions));
    w->letters = must_have(calloc((size_t)setup->servers + 1, sizeof *w->letters));
    w->home = must_have(calloc(tables, sizeof *w->home));
    w->shapes = must_have(calloc(tables, sizeof *w->shapes));
    w->tables = must_have(calloc(tables, sizeof *w->tables));
    if (server_cut(&w->sharding, t, setup, err)) return -1;
    for (int32_t i = 0; i < setup->num_tables; i++) w->home[i] = -1;
    for (int32_t i = 0; i < w->sharding.count; i++) {
        const int32_t table = w->sharding.shards[i].table;
        if (w->sharding.kind[table] == SHARD_TABLE) w->home[table] = i;
    }
    return 0;
}

void worker_close(struct worker *w) {
    struct room *const rooms[] = {&w->pulled, &w->map,      &w->ids,     &w->weights,
                                  &w->output, &w->gradient, &w->scratch, &w->of_slot};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]->data);
    for (int s = 0; w->letters && s < w->setup->servers; s++) free(w->letters[s].room.data);
    sharding_free(&w->sharding);
    free(w->letters);
    free(w->versions);
    free(w->home);
    free(w->shapes);
    free(w->tables);
    free(w->features);
    free(w->padding_row);
    free(w);
}

int64_t worker_version(const struct worker *w, int server) {
    return w->versions[server];
}

struct worker_report worker_report(const struct worker *w) {
    return w->report;
}

/* --- the rows of a batch */

/* Open addressing: keys are rows over all tables, values are numbers of pulled rows. */
struct map {
    int64_t *key;
    int32_t *value;
    uint64_t mask;
};

static struct map map_make(struct room *room, int64_t most) {
    struct map m = {.mask = 1};
    while (m.mask < 2 * (uint64_t)most) m.mask *= 2;
    m.key = room_for(room, m.mask * (sizeof *m.key + sizeof *m.value));
    m.value = (int32_t *)(m.key + m.mask);
    memset(m.key, 0xff, m.mask * sizeof *m.key);
    m.mask--;
    return m;
}

/* The number of a row, which may be a new one. */
static int32_t pulled_number(struct worker *w, const struct map *m, const struct batch *in,
                             int32_t table, int64_t row) {
    const int64_t key = in->tables[table].first_row + row;
    uint64_t at = mix64((uint64_t)key) & m->mask;
    for (; m->key[at] != -1; at = (at + 1) & m->mask)
        if (m->key[at] == key) return m->value[at];
    const struct sharding *s = &w->sharding;
    const int32_t shard = w->home[table] >= 0
                              ? w->home[table]
                              : s->part[table * s->ranks + sharding_owner(s, table, row)];
    const int32_t number = (int32_t)w->rows++;
    m->key[at] = key;
    m->value[at] = number;
    ((struct pulled *)w->pulled.data)[number] =
        (struct pulled){.row = row,
                        .in_shard = shard_row(&s->shards[shard], row),
                        .table = table,
                        .shard = shard,
                        .slot = (int32_t)w->shapes[table].rows++};
    return number;
}

static void take_features(struct worker *w, const struct batch *in) {
    const size_t count = (size_t)in->num_features;
    free(w->features);
    free(w->padding_row);
    w->features = must_have(calloc(count, sizeof *w->features));
    w->padding_row = must_have(calloc(count, sizeof *w->padding_row));
    w->num_features = in->num_features;
    memcpy(w->features, in->features, count * sizeof *w->features);
    for (int32_t t = 0; t < in->num_tables; t++)
        w->shapes[t] = (struct table_shape){.dim = in->tables[t].dim, .rule = RULE_sgd};
}

/* The numbers of the rows of all lookups, -1 for padding, which of a sequence has a row as well. */
static void number_rows(struct worker *w, const struct batch *in) {
    const int64_t most = in->lookups + in->num_features;
    const struct map map = map_make(&w->map, most + 1);
    room_for(&w->pulled, (size_t)(most + 1) * sizeof(struct pulled));
    int32_t *ids = room_for(&w->ids, (size_t)(in->lookups + 1) * sizeof *ids);
    w->rows = 0;
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        w->padding_row[f] = -1;
        for (int64_t i = in->offsets[f * in->bags]; i < in->offsets[(f + 1) * in->bags]; i++) {
            const int64_t row = batch_id(in, i);
            const bool pads = row == x->padding_id;
            ids[i] = -1;
            if (!pads)
                ids[i] = pulled_number(w, &map, in, x->table, row);
            else if (x->pooling == POOL_NONE)
                w->padding_row[f] = pulled_number(w, &map, in, x->table, row);
        }
    }
}

/* --- messages */

/* Letters with a head, and counts of the rows that `keep` has for each shard; then a place for those. */
static void begin_letters(struct worker *w, enum request_kind kind, const int32_t *numbers,
                          int64_t count, bool gradients) {
    const struct sharding *s = &w->sharding;
    const struct pulled *rows = w->pulled.data;
    int64_t *of = must_have(calloc((size_t)s->count + 1, sizeof *of));
    for (int64_t i = 0; i < count; i++) of[rows[numbers ? numbers[i] : i].shard]++;
    for (int r = 0; r < s->ranks; r++) {
        struct letter *l = &w->letters[r];
        const int32_t first = s->first[r], shards = s->first[r + 1] - first;
        l->bytes = sizeof(struct request_head);
        if (kind != REQUEST_END) l->bytes += (size_t)shards * sizeof *l->count;
        for (int32_t k = 0; k < shards; k++) {
            const int32_t dim = w->setup->shapes[s->shards[first + k].table].dim;
            l->bytes += (size_t)of[first + k] *
                        (sizeof(int64_t) + (gradients ? (size_t)dim * sizeof(float) : 0));
        }
        struct request_head *head = room_for(&l->room, l->bytes);
        *head = (struct request_head){kind, w->fingerprint, w->report.clocks, w->versions[r]};
        l->count = (int64_t *)(head + 1);
        if (kind != REQUEST_END) memcpy(l->count, of + first, (size_t)shards * sizeof *of);
    }
    free(of);
}

static int send_letters(struct worker *w, enum channel channel, struct error *err) {
    w->transport->channel = channel;
    for (int r = 0; r < w->setup->servers; r++)
        if (transport_send(w->transport, r, TAG_REQUEST, w->letters[r].room.data,
                           w->letters[r].bytes, err))
            return -1;
    return 0;
}

/* A place in a message for each shard of all servers. */
struct places {
    int64_t **rows;
    float **values;
};

static struct places find_places(const struct worker *w) {
    const struct sharding *s = &w->sharding;
    struct places p = {must_have(calloc((size_t)s->count + 1, sizeof *p.rows)),
                       must_have(calloc((size_t)s->count + 1, sizeof *p.values))};
    for (int r = 0; r < s->ranks; r++) {
        const int32_t first = s->first[r], shards = s->first[r + 1] - first;
        const int64_t *count = w->letters[r].count;
        int64_t *rows = w->letters[r].count + shards;
        for (int32_t k = 0; k < shards; rows += count[k++]) p.rows[first + k] = rows;
        float *values = (float *)rows;
        for (int32_t k = 0; k < shards; k++) {
            p.values[first + k] = values;
            values += count[k] * w->setup->shapes[s->shards[first + k].table].dim;
        }
    }
    return p;
}

static void free_places(struct places *p) {
    free(p->rows);
    free(p->values);
}

static int ask(struct worker *w, struct error *err) {
    begin_letters(w, REQUEST_PULL, NULL, w->rows, false);
    struct places p = find_places(w);
    const struct pulled *rows = w->pulled.data;
    for (int64_t i = 0; i < w->rows; i++) *p.rows[rows[i].shard]++ = rows[i].in_shard;
    free_places(&p);
    return send_letters(w, CHANNEL_IDS, err);
}

/* Waits for the rows of a server. */
static int hear(struct worker *w, int server, void **data, struct error *err) {
    struct transport *t = w->transport;
    struct message message;
    for (;;) {
        t->patience = w->setup->patience;
        const int status = transport_receive(t, server, TAG_ANSWER, data, &message, err);
        t->patience = 0;
        if (status) return -1;
        if (message.from == NOBODY)
            return fail(err, "server %d has not answered for %g s", server, w->setup->patience);
        const struct answer_head *head = *data;
        const bool waits = head->kind == ANSWER_WAIT, other = head->kind == ANSWER_OTHER_TABLES;
        if (!waits && !other) return 0;
        free(*data);
        if (other)
            return fail(err,
                        "server %d has other tables, another sharding or another number of "
                        "servers than worker %d",
                        server, t->rank - w->setup->servers);
    }
}

/* Puts what a server sends into the small tables. Rows come in the order in which they were asked for. */
static void unpack(struct worker *w, int server, const struct answer_head *head) {
    const struct sharding *s = &w->sharding;
    const int32_t first = s->first[server], shards = s->first[server + 1] - first;
    struct pulled *rows = w->pulled.data;
    const float **from = must_have(calloc((size_t)shards + 1, sizeof *from));
    const uint8_t **admitted = must_have(calloc((size_t)shards + 1, sizeof *admitted));
    const int64_t *count = w->letters[server].count;
    from[0] = (const float *)(head + 1);
    for (int32_t k = 0; k < shards; k++)
        from[k + 1] = from[k] + count[k] * w->setup->shapes[s->shards[first + k].table].dim;
    admitted[0] = (const uint8_t *)from[shards];
    for (int32_t k = 0; k + 1 < shards; k++) admitted[k + 1] = admitted[k] + count[k];
    for (int64_t i = 0; i < w->rows; i++) {
        const int32_t k = rows[i].shard - first;
        if (k < 0 || k >= shards) continue;
        const int32_t table = rows[i].table, dim = w->shapes[table].dim;
        memcpy(array_row(&w->tables[table].weight, rows[i].slot), from[k],
               (size_t)dim * sizeof(float));
        rows[i].admitted = *admitted[k]++;
        from[k] += dim;
    }
    w->versions[server] = head->version;
    free(from);
    free(admitted);
}

/* --- the local batch */

/* Memory of the small tables, with a row of padding for each feature. */
static void make_tables(struct worker *w) {
    size_t bytes = 0;
    for (int32_t f = 0; f < w->num_features; f++) {
        struct table_shape *shape = &w->shapes[w->features[f].table];
        w->features[f].padding_id = shape->rows++;
    }
    for (int32_t t = 0; t < w->setup->num_tables; t++)
        bytes += (table_memory_bytes(&w->shapes[t], TABLE_WEIGHT) + 63) / 64 * 64;
    char *at = room_for(&w->weights, bytes + 64);
    for (int32_t t = 0; t < w->setup->num_tables; t++) {
        void *memory[TABLE_ARRAYS] = {at};
        w->tables[t] = table_in(&w->shapes[t], memory);
        at += (table_memory_bytes(&w->shapes[t], TABLE_WEIGHT) + 63) / 64 * 64;
    }
}

/* A padding row is that of the table in a sequence, where its output counts; zeros otherwise. */
static void fill_padding(struct worker *w) {
    const struct pulled *rows = w->pulled.data;
    for (int32_t f = 0; f < w->num_features; f++) {
        const struct feature *x = &w->features[f];
        const struct array *weight = &w->tables[x->table].weight;
        const size_t bytes = (size_t)w->shapes[x->table].dim * sizeof(float);
        void *to = array_row(weight, x->padding_id);
        if (w->padding_row[f] < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, array_row(weight, rows[w->padding_row[f]].slot), bytes);
    }
}

static void make_batch(struct worker *w, const struct batch *in) {
    const struct pulled *rows = w->pulled.data;
    int32_t *ids = w->ids.data;
    for (int32_t f = 0; f < in->num_features; f++)
        for (int64_t i = in->offsets[f * in->bags]; i < in->offsets[(f + 1) * in->bags]; i++) {
            const bool counts = ids[i] >= 0, admitted = counts && rows[ids[i]].admitted;
            w->report.lookups += counts;
            w->report.refused += counts && !admitted;
            ids[i] = admitted ? rows[ids[i]].slot : (int32_t)w->features[f].padding_id;
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

/* The numbers of pulled rows by slot, table after table. */
static int32_t *numbers_by_slot(struct worker *w, int64_t *first) {
    const struct pulled *rows = w->pulled.data;
    first[0] = 0;
    for (int32_t t = 0; t < w->setup->num_tables; t++) first[t + 1] = first[t] + w->shapes[t].rows;
    int32_t *of = room_for(&w->of_slot, (size_t)(first[w->setup->num_tables] + 1) * sizeof *of);
    for (int64_t i = 0; i < w->rows; i++) of[first[rows[i].table] + rows[i].slot] = (int32_t)i;
    return of;
}

/* Sends the entries of a merged gradient to the servers of their rows. */
static int send_gradient(struct worker *w, const struct sparse_gradient *of, struct error *err) {
    const int32_t tables = w->setup->num_tables;
    const struct pulled *rows = w->pulled.data;
    int64_t *first = must_have(calloc((size_t)tables + 1, sizeof *first)), count = 0;
    const int32_t *by_slot = numbers_by_slot(w, first);
    for (int32_t t = 0; t < tables; t++) count += *of[t].count;
    int32_t *numbers = must_have(calloc((size_t)count + 1, sizeof *numbers)), *next = numbers;
    for (int32_t t = 0; t < tables; t++)
        for (int64_t k = 0; k < *of[t].count; k++) *next++ = by_slot[first[t] + of[t].rows[k]];
    begin_letters(w, REQUEST_PUSH, numbers, count, true);
    struct places p = find_places(w);
    next = numbers;
    for (int32_t t = 0; t < tables; t++)
        for (int64_t k = 0; k < *of[t].count; k++) {
            const struct pulled *x = &rows[*next++];
            const int64_t dim = w->shapes[t].dim;
            *p.rows[x->shard]++ = x->in_shard;
            memcpy(p.values[x->shard], of[t].values + k * dim, (size_t)dim * sizeof(float));
            p.values[x->shard] += dim;
        }
    free_places(&p);
    free(numbers);
    free(first);
    w->report.pushed += count;
    return send_letters(w, CHANNEL_GRADIENT, err);
}

static int push(struct worker *w, struct error *err) {
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
    take_features(w, in);
    number_rows(w, in);
    if (ask(w, err)) return -1;
    make_tables(w);
    for (int r = 0; r < w->setup->servers; r++) {
        void *data;
        if (hear(w, r, &data, err)) return -1;
        unpack(w, r, data);
        free(data);
    }
    w->report.pulled += w->rows;
    fill_padding(w);
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
    transport_phase(w->transport, "pushing gradients");
    if (push(w, err)) return -1;
    w->report.clocks++;
    return 0;
}

int worker_end(struct worker *w, struct error *err) {
    begin_letters(w, REQUEST_END, NULL, 0, false);
    return send_letters(w, CHANNEL_CONTROL, err);
}
