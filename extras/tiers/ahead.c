/* SPDX-License-Identifier: MIT */
#include "extras/tiers/ahead.h"

#include <stdlib.h>

#include "harness/memory.h"

struct announced {
    int batch;
    bool changes;
};

struct ahead {
    struct resident *resident;
    pthread_t thread;
    bool has_thread; /* it starts with the first batch that is announced */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Numbers of batches, one after another: done <= admitted <= end. */
    struct announced queue[AHEAD_MOST];
    int64_t done, admitted, end;
    bool stop, failed;
    struct error err; /* of the admission that has failed */
};

static struct announced *nth(struct ahead *a, int64_t number) {
    return &a->queue[number % AHEAD_MOST];
}

static void *admit_all(void *ctx) {
    struct ahead *a = ctx;
    pthread_mutex_lock(&a->lock);
    while (!a->stop && !a->failed) {
        if (a->admitted == a->end) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        const struct announced next = *nth(a, a->admitted);
        struct error err;
        pthread_mutex_unlock(&a->lock);
        const int status = resident_admit(a->resident, next.batch, next.changes, &err);
        pthread_mutex_lock(&a->lock);
        if (status) {
            a->failed = true;
            a->err = err;
        } else
            a->admitted++;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

struct ahead *ahead_open(struct resident *r) {
    struct ahead *a = must_have(calloc(1, sizeof *a));
    a->resident = r;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    return a;
}

void ahead_close(struct ahead *a) {
    if (!a) return;
    if (a->has_thread) {
        struct resident *r = a->resident;
        pthread_mutex_lock(&r->lock);
        r->stop = true;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        pthread_mutex_lock(&a->lock);
        a->stop = true;
        pthread_cond_broadcast(&a->changed);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static int announce(struct ahead *a, int batch, bool changes, struct error *err) {
    if (a->end - a->done == AHEAD_MOST)
        return fail(err, "%d batches are announced; run one first", AHEAD_MOST);
    for (int64_t n = a->done; n < a->end; n++)
        if (nth(a, n)->batch == batch)
            return fail(err, "batch %d is announced, and has not run", batch);
    if (!a->has_thread && pthread_create(&a->thread, NULL, admit_all, a))
        return fail(err, "no thread to fetch rows ahead");
    a->has_thread = true;
    *nth(a, a->end++) = (struct announced){batch, changes};
    pthread_cond_broadcast(&a->changed);
    return 0;
}

int ahead_announce(struct ahead *a, int batch, bool changes, struct error *err) {
    pthread_mutex_lock(&a->lock);
    const int status = announce(a, batch, changes, err);
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* Batches that are announced are dropped. A thread that has failed has ended: another one starts with the next. */
static void give_up(struct ahead *a) {
    pthread_mutex_lock(&a->lock);
    const bool ended = a->failed;
    pthread_mutex_unlock(&a->lock);
    if (ended) pthread_join(a->thread, NULL);
    pthread_mutex_lock(&a->lock);
    if (ended) a->has_thread = a->failed = false;
    a->end = a->admitted = a->done;
    pthread_mutex_unlock(&a->lock);
    resident_give_up(a->resident);
}

/* These return 1 if the batch was not admitted. */

static int take(struct ahead *a, int batch, bool changes, struct error *err) {
    const struct announced *next = nth(a, a->done);
    if (next->batch != batch || next->changes != changes)
        return fail(err, "batch %d runs%s, and batch %d was announced%s", batch,
                    changes ? "" : " a lookup", next->batch, next->changes ? "" : " for a lookup");
    while (a->admitted == a->done && !a->failed) pthread_cond_wait(&a->changed, &a->lock);
    if (a->admitted > a->done) return 0;
    *err = a->err;
    return 1;
}

static int admit_here(struct ahead *a, int batch, bool changes, struct error *err) {
    if (resident_admit(a->resident, batch, changes, err)) return 1;
    *nth(a, a->end++) = (struct announced){batch, changes};
    a->admitted++;
    return 0;
}

int ahead_take(struct ahead *a, int batch, bool changes, struct error *err) {
    const double begin = clock_seconds();
    pthread_mutex_lock(&a->lock);
    const int status = (a->done == a->end ? admit_here : take)(a, batch, changes, err);
    pthread_mutex_unlock(&a->lock);
    if (status > 0) give_up(a);
    a->resident->counts.wait += clock_seconds() - begin;
    return status ? -1 : 0;
}

void ahead_done(struct ahead *a) {
    pthread_mutex_lock(&a->lock);
    a->done++;
    pthread_mutex_unlock(&a->lock);
    resident_release(a->resident);
}

int ahead_none(struct ahead *a, struct error *err) {
    pthread_mutex_lock(&a->lock);
    const bool none = a->done == a->end;
    pthread_mutex_unlock(&a->lock);
    return none ? 0 : fail(err, "batches are announced; run them first");
}
