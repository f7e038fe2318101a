/* SPDX-License-Identifier: MIT */
#include "extras/tiers/place_tier.h"

#include <stdlib.h>

#include "harness/memory.h"

struct announced {
    int batch;
    bool changes;
};

struct tier {
    struct place place;
    struct resident *resident;
    struct place *inner;
    pthread_t thread; /* admits what is announced */
    bool has_thread;
    /* Under the lock of resident. Batches with the numbers released .. end-1 are announced. */
    struct announced queue[ANNOUNCED_MOST];
    int64_t end;
    bool failed; /* to admit number `admitted` */
    struct error why;
};

static struct tier *tier_of(struct place *p) {
    return (struct tier *)p;
}

/* --- the queue */

static struct announced *nth(struct tier *x, int64_t number) {
    return &x->queue[number % ANNOUNCED_MOST];
}

static void *admit_all(void *ctx) {
    struct tier *x = ctx;
    struct resident *r = x->resident;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        if (x->failed || r->admitted == x->end) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        const struct announced next = *nth(x, r->admitted);
        struct error err;
        pthread_mutex_unlock(&r->lock);
        const bool failed = resident_admit(r, next.batch, next.changes, &err);
        pthread_mutex_lock(&r->lock);
        if (failed)
            x->why = err;
        else
            r->admitted++;
        x->failed = failed;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static int announce(struct tier *x, int batch, bool changes, struct error *err) {
    struct resident *r = x->resident;
    if (x->end - r->released == ANNOUNCED_MOST)
        return fail(err, "%d batches are announced; run one first", ANNOUNCED_MOST);
    for (int64_t n = r->released; n < x->end; n++)
        if (nth(x, n)->batch == batch)
            return fail(err, "batch %d is announced, and has not run", batch);
    *nth(x, x->end++) = (struct announced){batch, changes};
    pthread_cond_broadcast(&r->changed);
    return 0;
}

/* Waits until the rows of the next batch are in slots. */
static int take_next(struct tier *x, int batch, struct error *err) {
    struct resident *r = x->resident;
    const int next = nth(x, r->released)->batch;
    if (next != batch) return fail(err, "batch %d runs, and batch %d was announced", batch, next);
    while (r->admitted == r->released && !x->failed) pthread_cond_wait(&r->changed, &r->lock);
    if (r->admitted > r->released) return 0;
    *err = x->why;
    x->failed = false;
    r->released = x->end = ++r->admitted; /* what is announced is dropped */
    return -1;
}

/* A batch that was not announced is announced now. */
static int take(struct tier *x, const struct place_job *job, struct error *err) {
    struct resident *r = x->resident;
    const double begin = clock_seconds();
    int status = 0;
    pthread_mutex_lock(&r->lock);
    if (x->end == r->released)
        status = announce(x, job->batch, job->kernel->operation == OP_STEP, err);
    if (status == 0) status = take_next(x, job->batch, err);
    r->counts.wait += clock_seconds() - begin;
    pthread_mutex_unlock(&r->lock);
    return status;
}

static int none_announced(struct tier *x, struct error *err) {
    struct resident *r = x->resident;
    pthread_mutex_lock(&r->lock);
    const bool none = x->end == r->released;
    pthread_mutex_unlock(&r->lock);
    return none ? 0 : fail(err, "batches are announced; run them first");
}

/* --- the place */

static void tier_close(struct place *p) {
    struct tier *x = tier_of(p);
    struct resident *r = x->resident;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (x->has_thread) pthread_join(x->thread, NULL);
    resident_close(r);
    free(x);
}

static int scratch_bytes(struct place *p, const struct kernel *k, size_t *bytes,
                         struct error *err) {
    struct place *inner = tier_of(p)->inner;
    if (k->traits & DENSE_STEP)
        return fail(err,
                    "%s changes rows that no lookup touches; with a part of the rows in slots they "
                    "are not in memory",
                    k->name);
    return inner->ops->scratch_bytes(inner, k, bytes, err);
}

static int scratch_open(struct place *p, struct place_scratch *s, size_t bytes, const char *what,
                        struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->scratch_open(inner, s, bytes, what, err);
}

static void scratch_close(struct place *p, struct place_scratch *s) {
    struct place *inner = tier_of(p)->inner;
    inner->ops->scratch_close(inner, s);
}

static int scratch_fill(struct place *p, struct place_scratch *s, int byte, struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->scratch_fill(inner, s, byte, err);
}

static int scratch_get(struct place *p, const struct place_scratch *s, void *to,
                       struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->scratch_get(inner, s, to, err);
}

static int run(struct place *p, const struct place_job *job, struct error *err) {
    struct tier *x = tier_of(p);
    struct resident *r = x->resident;
    if (take(x, job, err)) return -1;
    const int status = x->inner->ops->run(x->inner, job, err);
    pthread_mutex_lock(&r->lock);
    r->released++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return status;
}

static int restore(struct place *p, int batch, struct error *err) {
    struct resident *r = tier_of(p)->resident;
    if (none_announced(tier_of(p), err)) return -1;
    return resident_restore(r, batch < 0 ? NULL : &r->setup.index[batch], err);
}

static int get_rows(struct place *p, int32_t t, int64_t begin, int64_t end, struct table *rows,
                    struct error *err) {
    if (none_announced(tier_of(p), err)) return -1;
    return resident_get(tier_of(p)->resident, t, begin, end, rows, err);
}

static int intact(struct place *p, int batch, const struct place_scratch *s, struct error *err) {
    return fast_intact(tier_of(p)->resident->fast, batch, s, err);
}

static const struct place_ops tier_ops = {.close = tier_close,
                                          .scratch_bytes = scratch_bytes,
                                          .scratch_open = scratch_open,
                                          .scratch_close = scratch_close,
                                          .scratch_fill = scratch_fill,
                                          .scratch_get = scratch_get,
                                          .run = run,
                                          .restore = restore,
                                          .tables = place_tables_elsewhere,
                                          .get_rows = get_rows,
                                          .intact = intact};

static const char *refuses(const struct place_setup *s) {
    if (s->tables) return "tables with a given content";
    for (int32_t t = 0; t < s->num_tables; t++) {
        if (s->shapes[t].rounding == ROUND_STOCHASTIC) return "stochastic rounding";
        if (s->shapes[t].rows >= INT32_MAX) return "tables of 2^31 - 1 rows or more";
    }
    return NULL;
}

struct place *place_tier_open(const struct tier_options *o, const struct place_setup *setup,
                              struct error *err) {
    const char *why = refuses(setup);
    if (why) return fail(err, "with a part of the rows in slots there are no %s", why), NULL;
    if (!(o->budget > 0 && o->budget <= 1))
        return fail(err, "budget %g: a share of the rows, above 0 and up to 1", o->budget), NULL;
    struct resident *r = resident_open(o, setup, err);
    if (!r) return NULL;
    struct tier *x = must_have(calloc(1, sizeof *x));
    x->place.ops = &tier_ops;
    x->resident = r;
    x->inner = r->fast->place;
    x->has_thread = pthread_create(&x->thread, NULL, admit_all, x) == 0;
    if (x->has_thread) return &x->place;
    tier_close(&x->place);
    return fail(err, "no thread to fetch rows"), NULL;
}

int tier_announce(struct place *p, int batch, struct error *err) {
    struct tier *x = tier_of(p);
    pthread_mutex_lock(&x->resident->lock);
    const int status = announce(x, batch, true, err);
    pthread_mutex_unlock(&x->resident->lock);
    return status;
}

int tier_commit(struct place *p, struct error *err) {
    return none_announced(tier_of(p), err) ? -1 : resident_commit(tier_of(p)->resident, err);
}

struct resident *tier_resident(struct place *p) {
    return tier_of(p)->resident;
}
