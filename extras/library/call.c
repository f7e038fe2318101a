/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>

#include "extras/library/model.h"

int call_begin(struct call *c, const struct embfuse_model *m, struct embfuse_error *why) {
    if (!m) return said(why, EMBFUSE_INVALID, "model is NULL");
    if (__atomic_exchange_n((bool *)&m->busy, true, __ATOMIC_ACQUIRE))
        return said(why, EMBFUSE_BUSY,
                    "another thread is in a call of this model, which takes one at a time: "
                    "take turns, or make a model for each thread");
    c->m = m;
    return 0;
}

void call_end(struct call *c) {
    if (c->m) __atomic_store_n((bool *)&c->m->busy, false, __ATOMIC_RELEASE);
}

/* A child of fork() has none of its parent's threads, which OpenMP does not notice: it would wait for them for ever. */
static atomic_bool lost;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static void lose(void) {
    lost = true;
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, lose);
}

int has_threads(int threads, struct embfuse_error *why) {
    if (threads == 1) return 0;
    pthread_once(&watched, watch_forks); /* forks before the first call lose nothing */
    if (!lost) return 0;
    return said(why, EMBFUSE_FORKED,
                "this process is a child of one whose calls had several threads, which fork() did "
                "not copy: take threads of 1 here, or fork before the first call");
}
