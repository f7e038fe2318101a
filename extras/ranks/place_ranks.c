/* SPDX-License-Identifier: MIT */
#include "extras/ranks/place_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "harness/measure/runner.h"
#include "harness/registry.h"
#include "extras/ranks/member.h"
#include "extras/ranks/times.h"

struct ranks {
    struct place place;
    struct place_setup setup;
    struct member member;
    int fill; /* of the scratch, before the next step */
    struct rank_times times;
    struct place_counter *counters;
};

static struct ranks *ranks_of(struct place *p) {
    return (struct ranks *)p;
}

static int number_of(const struct kernel *k) {
    int number = 0;
    while (k && registry()[number].kernel != k) number++;
    return k ? number : -1;
}

/* Tells all ranks what to do, and does it. */
static int command(struct ranks *r, struct order *o, const struct rule_step *steps,
                   struct reply *out, struct error *err) {
    struct transport *t = r->member.transport;
    t->channel = CHANNEL_CONTROL;
    if (transport_broadcast(t, 0, o, sizeof *o, err)) return -1;
    const size_t bytes = (size_t)r->setup.num_tables * sizeof *steps;
    if (steps && transport_broadcast(t, 0, (void *)steps, bytes, err)) return -1;
    return member_do(&r->member, o, steps, out, err);
}

/* --- the place */

static void ranks_close(struct place *p) {
    struct ranks *r = ranks_of(p);
    struct transport *t = r->member.transport;
    struct order o = {.what = DO_CLOSE};
    struct error err;
    t->channel = CHANNEL_CONTROL;
    transport_broadcast(t, 0, &o, sizeof o, &err);
    member_close(&r->member);
    free(r->counters);
    free(r);
}

/* Scratch lies on the ranks; here is only its size. Outputs are collected in one of this size. */
static int scratch_fill(struct place *p, struct place_scratch *s, int byte, struct error *err) {
    (void)err;
    ranks_of(p)->fill = byte;
    if (s->bytes) memset(s->data, byte, s->bytes);
    return 0;
}

static int scratch_bytes(struct place *p, const struct kernel *k, size_t *bytes,
                         struct error *err) {
    struct order o = {.what = DO_SCRATCH, .kernel = number_of(k)};
    struct reply reply;
    if (command(ranks_of(p), &o, NULL, &reply, err)) return -1;
    *bytes = reply.scratch;
    return 0;
}

static void take_output(const struct ranks *r, int rank, const struct batch *whole, void *from,
                        void *to) {
    const int ranks = r->member.transport->ranks;
    const int64_t bags = whole->features[0].bags;
    deal_move_bags(whole, sharding_bag(bags, rank, ranks), sharding_bag(bags, rank + 1, ranks),
                   DEAL_PUT, to, from);
}

static int collect_output(struct ranks *r, int batch, void *to, struct error *err) {
    const struct batch *whole = &r->setup.batches[batch];
    struct transport *t = r->member.transport;
    take_output(r, 0, whole, r->member.result, to);
    for (int rank = 1; rank < t->ranks; rank++) {
        void *data;
        struct message message;
        if (transport_receive(t, rank, TAG_OUTPUT, &data, &message, err)) return -1;
        take_output(r, rank, whole, data, to);
        free(data);
    }
    return 0;
}

static struct order order_of(struct ranks *r, enum what what, const struct place_job *job) {
    struct order o = {.what = what,
                      .kernel = number_of(job->kernel),
                      .forward = number_of(job->forward),
                      .batch = job->batch,
                      .fill = r->fill};
    r->fill = AS_IT_IS;
    return o;
}

static int run(struct place *p, const struct place_job *job, struct error *err) {
    struct ranks *r = ranks_of(p);
    struct order o = order_of(r, DO_RUN, job);
    struct reply reply;
    o.gather = job->output != NULL;
    if (command(r, &o, job->steps, &reply, err)) return -1;
    for (int s = 0; job->mark && s < STAGE_COUNT; s++)
        if (reply.times.stage[s] > 0) job->mark(job->mark_ctx, (enum stage)s);
    return o.gather ? collect_output(r, job->batch, job->output->data, err) : 0;
}

static int parts(struct place *p, const struct place_job *job, struct step_parts *out,
                 struct error *err) {
    struct ranks *r = ranks_of(p);
    struct order o = order_of(r, DO_PARTS, job);
    struct reply reply;
    if (command(r, &o, job->steps, &reply, err)) return -1;
    *out = (struct step_parts){.appeared = reply.appeared};
    return 0;
}

const struct rank_times *place_ranks_times(const struct place *p) {
    return &((const struct ranks *)p)->times;
}

static int time_step(struct place *p, const struct place_job *job, bool cold,
                     struct step_times *out, struct error *err) {
    struct ranks *r = ranks_of(p);
    struct order o = order_of(r, DO_TIME, job);
    struct reply reply;
    o.cold = cold;
    if (command(r, &o, job->steps, &reply, err)) return -1;
    r->times = reply.times;
    const int count = times_counters(&r->times, r->member.of_rank, r->member.transport->ranks,
                                     job->forward, r->counters);
    *out = (struct step_times){.seconds = r->times.seconds,
                               .forward = r->times.forward,
                               .plan = r->times.plan,
                               .num_counters = count,
                               .counters = r->counters,
                               .disturbed = r->times.disturbed};
    memcpy(out->stage, r->times.stage, sizeof out->stage);
    return 0;
}

static int ceilings(struct place *p, struct ceiling *out, struct error *err) {
    struct order o = {.what = DO_CEILINGS};
    struct reply reply;
    if (command(ranks_of(p), &o, NULL, &reply, err)) return -1;
    *out = reply.ceiling;
    return 0;
}

static int restore(struct place *p, int batch, struct error *err) {
    struct order o = {.what = DO_RESTORE, .batch = batch};
    struct reply reply;
    return command(ranks_of(p), &o, NULL, &reply, err);
}

static int get_rows(struct place *p, int32_t table, int64_t begin, int64_t end, struct table *rows,
                    struct error *err) {
    struct ranks *r = ranks_of(p);
    struct transport *t = r->member.transport;
    const struct sharding *s = &r->member.sharding;
    struct order o = {.what = DO_ROWS, .table = table, .begin = begin, .end = end};
    struct reply reply;
    if (command(r, &o, NULL, &reply, err)) return -1;
    const struct table_shape *shape = &r->setup.shapes[table];
    void *memory[TABLE_ARRAYS];
    int status = 0, shards = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) memory[a] = rows->array[a].data;
    struct table to = table_in(shape, memory);
    for (int rank = 0; rank < t->ranks; rank++) {
        const int32_t number = s->part[(int64_t)table * s->ranks + rank];
        if (number < 0) continue;
        const struct shard *part = &s->shards[number];
        void *data;
        struct message message;
        int64_t first;
        const int64_t count = deal_rows_in(part, begin, end, &first);
        if (transport_receive(t, rank, TAG_ROWS, &data, &message, err)) return -1;
        const struct table_shape own = sharding_shape(s, part, r->setup.shapes);
        struct table came = deal_rows_in_message(&own, count, data);
        if (((char *)data)[message.bytes - 1])
            status = fail(err, "rank %d cannot read its rows of table %d", rank, table);
        else if (!deal_put_rows(s, part, &own, shards++ > 0, &to, begin, first, count, &came))
            status = fail(err, "rank %d has other rows of table %d than rank 0", rank, table);
        free(data);
    }
    return status;
}

static int intact(struct place *p, int batch, const struct place_scratch *s, struct error *err) {
    struct order o = {.what = DO_INTACT, .batch = batch};
    struct reply reply;
    if (!buffer_intact(&s->host)) return fail(err, "wrote outside of its output"), 1;
    return command(ranks_of(p), &o, NULL, &reply, err) ? 1 : 0;
}

static const struct place_ops ranks_ops = {.close = ranks_close,
                                           .scratch_bytes = scratch_bytes,
                                           .scratch_open = place_scratch_open,
                                           .scratch_close = place_scratch_close,
                                           .scratch_fill = scratch_fill,
                                           .scratch_get = place_scratch_get,
                                           .run = run,
                                           .parts = parts,
                                           .time = time_step,
                                           .ceilings = ceilings,
                                           .restore = restore,
                                           .tables = place_tables_elsewhere,
                                           .get_rows = get_rows,
                                           .intact = intact};

struct place *place_ranks_open(struct transport *t, const struct ranks_options *o,
                               enum backend backend, const struct place_setup *setup,
                               struct error *err) {
    const struct batch *in = &setup->batches[0];
    struct opening opening = {.backend = backend,
                              .all_rows = o->all_rows,
                              .overlap = o->overlap,
                              .staged = o->staged,
                              .timed = setup->timed,
                              .weighted = in->lookup_weights != NULL,
                              .num_tables = setup->num_tables,
                              .num_features = in->num_features,
                              .bags = in->features[0].bags,
                              .id_type = in->id_type,
                              .grad_type = in->grad_type,
                              .ring = setup->ring,
                              .threads = setup->threads,
                              .seed = setup->seed,
                              .operation = setup->operation};
    if (strlen(o->sharding) >= sizeof opening.sharding)
        return fail(err, "sharding '%.40s...' has too many words", o->sharding), NULL;
    strcpy(opening.sharding, o->sharding);
    if (o->load && strlen(o->load) >= sizeof opening.load)
        return fail(err, "%.60s...: too long", o->load), NULL;
    if (o->load) strcpy(opening.load, o->load);
    if (setup->tables) return fail(err, "ranks make their own tables"), NULL;
    if (setup->operation != OP_STEP && setup->operation != OP_FORWARD)
        return fail(err, "ranks have steps, lookups and iterations; nothing else"), NULL;
    struct sharding cut;
    if (sharding_make(&cut, opening.sharding, setup->shapes, setup->num_tables, t->ranks, t->nodes,
                      err))
        return NULL;
    const char *why = route_refuses(&cut, in);
    const bool in_parts = route_sums_in_parts(&cut, in);
    sharding_free(&cut);
    if (why) return fail(err, "sharding %.80s: %s", opening.sharding, why), NULL;
    struct ranks *r = must_have(calloc(1, sizeof *r));
    r->place.ops = &ranks_ops;
    r->setup = *setup;
    r->fill = AS_IT_IS;
    r->counters = must_have(calloc(times_counters_most(t->ranks), sizeof *r->counters));
    r->place.sums_in_parts = in_parts;
    struct order order = {.what = DO_OPEN};
    t->channel = CHANNEL_CONTROL;
    if (transport_broadcast(t, 0, &order, sizeof order, err) == 0 &&
        transport_broadcast(t, 0, &opening, sizeof opening, err) == 0 &&
        member_open(&r->member, t, &opening, setup->shapes, setup->batches, err) == 0)
        return &r->place;
    member_close(&r->member);
    free(r->counters);
    free(r);
    return NULL;
}

/* --- saved states */

const struct checkpoint *ranks_loaded(const struct place *p) {
    const struct member *m = &((const struct ranks *)p)->member;
    return *m->opening.load ? &m->loaded : NULL;
}

int ranks_save(struct place *p, const char *path, const struct rule *rules, const int64_t *steps,
               uint64_t seed, struct error *err) {
    struct ranks *r = ranks_of(p);
    struct state state = {
        .shapes = r->setup.shapes, .num_tables = r->setup.num_tables, .seed = seed};
    struct embfuse_error why;
    if (state_tables(&state, &why)) return fail_memory(err, "%s", why.text);
    for (int32_t t = 0; t < state.num_tables; t++) {
        state.tables[t].rule = rules[t];
        state.tables[t].steps = steps[t];
    }
    transport_phase(r->member.transport, "saving");
    return checkpoint_save(p, path, &state, err);
}

/* --- the other ranks */

/* Returns 1 if the place is closed, otherwise as member_do(). */
static int obey(struct member *m, struct transport *t, const struct order *o, struct error *err) {
    struct reply reply;
    const bool steps = o->what == DO_RUN || o->what == DO_TIME || o->what == DO_PARTS;
    if (o->what == DO_CLOSE) return member_close(m), 1;
    const size_t bytes = (size_t)m->opening.num_tables * sizeof *m->steps;
    t->channel = CHANNEL_CONTROL;
    if (steps && transport_broadcast(t, 0, m->steps, bytes, err)) return -1;
    return member_do(m, o, steps ? m->steps : NULL, &reply, err);
}

static int follow(struct member *m, struct transport *t, struct error *err) {
    struct opening opening;
    for (;;) {
        struct order o;
        t->channel = CHANNEL_CONTROL;
        transport_phase(t, "waiting for an order");
        if (transport_broadcast(t, 0, &o, sizeof o, err)) return -1;
        if (o.what == DO_EXIT) return 0;
        if (o.what != DO_OPEN) {
            obey(m, t, &o, err); /* rank 0 knows of an error, and decides */
            continue;
        }
        if (transport_broadcast(t, 0, &opening, sizeof opening, err)) return -1;
        if (member_open(m, t, &opening, NULL, NULL, err)) member_close(m);
    }
}

int ranks_follow(struct transport *t, struct error *err) {
    struct member m = {0};
    const int status = follow(&m, t, err);
    member_close(&m); /* if rank 0 has ended without an order */
    return status;
}

int ranks_dismiss(struct transport *t, struct error *err) {
    struct order o = {.what = DO_EXIT};
    t->channel = CHANNEL_CONTROL;
    return transport_broadcast(t, 0, &o, sizeof o, err);
}
