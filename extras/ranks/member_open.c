/* SPDX-License-Identifier: MIT */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "extras/ranks/member.h"
#include "kernels/shape.h"

static struct deal member_deal(const struct member *m) {
    const struct opening *o = &m->opening;
    return (struct deal){.transport = m->transport,
                         .shapes = m->shapes,
                         .features = m->features,
                         .num_tables = o->num_tables,
                         .num_features = o->num_features,
                         .bags = o->bags,
                         .id_type = o->id_type,
                         .grad_type = o->grad_type,
                         .weighted = o->weighted};
}

static bool on_same_ranks(const struct sharding *s, int32_t a, int32_t b) {
    for (int r = 0; r < s->ranks; r++)
        if ((s->part[(int64_t)a * s->ranks + r] < 0) != (s->part[(int64_t)b * s->ranks + r] < 0))
            return false;
    return true;
}

enum { DENSE_NUMBER = GROUPS_MOST - 1 };

/* The group of a table, in the order of their steps. Exchanges and updates overlap if the first ones are two; the dense
 * group starts none. */
static int group_of(const struct member *m, int32_t table) {
    if (m->sharding.kind[table] == SHARD_DATA_DENSE) return DENSE_NUMBER;
    if (!m->opening.overlap) return 0;
    /* Of the tables of a rank every second one, so that both groups have work for all ranks. */
    int before = 0;
    for (int32_t t = 0; t < table; t++) before += on_same_ranks(&m->sharding, t, table);
    return before % 2;
}

static int open_groups(struct member *m, struct error *err) {
    const struct opening *o = &m->opening;
    const struct deal deal = member_deal(m);
    const struct group_setup setup = {.sharding = &m->sharding,
                                      .transport = m->transport,
                                      .deal = &deal,
                                      .own = m->own,
                                      .own_grads = m->on_device ? m->own_grads : NULL,
                                      .all_rows = o->all_rows,
                                      .from = *o->load ? &m->loaded : NULL,
                                      .backend = o->backend,
                                      .inner = {.ring = o->ring,
                                                .threads = o->threads,
                                                .seed = o->seed,
                                                .timed = o->timed,
                                                .operation = o->operation}};
    bool *keep = must_have(calloc((size_t)o->num_tables, sizeof *keep));
    int status = 0;
    for (int number = 0; status == 0 && number < GROUPS_MOST; number++) {
        bool any = false;
        for (int32_t t = 0; t < o->num_tables; t++) any |= keep[t] = group_of(m, t) == number;
        if (any)
            status =
                group_open(&m->groups[m->num_groups++], &setup, keep, number == DENSE_NUMBER, err);
    }
    free(keep);
    return status;
}

/* Finds a saved state. From here on the tables have its seed of roundings and its
 * hyper-parameters. */
static int load(struct member *m, struct error *err) {
    const struct opening *o = &m->opening;
    struct checkpoint *c = &m->loaded;
    const char *why = NULL;
    if (checkpoint_open(c, m->transport, o->load, m->shapes, o->num_tables, err)) return -1;
    for (int32_t t = 0; t < o->num_tables && !why; t++) {
        m->shapes[t].rounding_key = rng_key(c->state.seed, (uint64_t)t);
        m->shapes[t].adjusts = rule_adjusts(&c->state.tables[t].rule);
        why = sharding_refuses(m->sharding.kind[t], &m->shapes[t]);
    }
    return why ? fail(err, "%.80s, as %.200s has it: %s", o->sharding, o->load, why) : 0;
}

/* Each rank of a node takes a device; rows travel between them, if there is a transport for it. */
static int open_device(struct member *m, struct error *err) {
    struct transport *t = m->transport;
    const struct opening *o = &m->opening;
    if (o->backend != ON_DEVICE) return 0;
    device_choose(t->rank % (t->ranks / t->nodes));
    if (o->staged || !t->open_device) return 0;
    if (!t->device && t->open_device(t, err)) return -1;
    m->on_device = true;
    int status = 0;
    size_t most = 0;
    for (int k = 0; k < o->ring && status == 0; k++) {
        const size_t bytes = deal_grad_bytes(&m->own[k]);
        most = bytes > most ? bytes : most;
        status = device_alloc(&m->own_grads[k], bytes, "own gradients", err) ||
                 device_put(m->own_grads[k].data, m->own[k].grad, bytes, err);
    }
    if (status == 0) status = device_alloc(&m->device_result, most, "the output", err);
    return transport_agree(t, status, err);
}

int member_open(struct member *m, struct transport *t, const struct opening *o,
                const struct table_shape *shapes, const struct batch *whole, struct error *err) {
    memset(m, 0, sizeof *m);
    m->transport = t;
    m->opening = *o;
    omp_set_num_threads(o->threads); /* also of loops that pack and unpack */
    transport_phase(t, "opening");
    const size_t count = (size_t)o->num_tables, features = (size_t)o->num_features;
    m->shapes = must_have(calloc(count, sizeof *m->shapes));
    m->features = must_have(calloc(features, sizeof *m->features));
    m->steps = must_have(calloc(count, sizeof *m->steps));
    m->of_rank = must_have(calloc((size_t)t->ranks, sizeof *m->of_rank));
    if (t->rank == 0) {
        memcpy(m->shapes, shapes, count * sizeof *m->shapes);
        memcpy(m->features, whole[0].features, features * sizeof *m->features);
    }
    t->channel = CHANNEL_CONTROL;
    if (transport_broadcast(t, 0, m->shapes, count * sizeof *m->shapes, err) ||
        transport_broadcast(t, 0, m->features, features * sizeof *m->features, err))
        return -1;
    const int status =
        sharding_make(&m->sharding, o->sharding, m->shapes, o->num_tables, t->ranks, t->nodes, err);
    if (transport_agree(t, status, err)) return -1;
    if (*o->load && load(m, err)) return -1;
    transport_phase(t, "opening");
    const struct deal deal = member_deal(m);
    size_t most = 0;
    for (int k = 0; k < o->ring; k++) {
        if (deal_batch(&deal, whole ? &whole[k] : NULL, &m->own[k], err)) return -1;
        const size_t bytes = deal_grad_bytes(&m->own[k]);
        most = bytes > most ? bytes : most;
    }
    m->result = must_have(array_alloc((int64_t)most + 1, 1));
    return open_device(m, err) || open_groups(m, err) ? -1 : 0;
}

void member_close(struct member *m) {
    for (int g = 0; g < m->num_groups; g++) group_close(&m->groups[g]);
    for (int k = 0; k < RING_MAX; k++) {
        deal_free(&m->own[k]);
        if (m->on_device) device_free(&m->own_grads[k]);
    }
    if (m->on_device) device_free(&m->device_result);
    sharding_free(&m->sharding);
    checkpoint_close(&m->loaded);
    free(m->shapes);
    free(m->features);
    free(m->steps);
    free(m->result);
    free(m->of_rank);
    memset(m, 0, sizeof *m);
}
