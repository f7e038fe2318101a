/* SPDX-License-Identifier: MIT
 *
 * Ranks that are threads of one process: no MPI, and sanitizers see all of it. The receiver copies; a rank
 * that is dead ends the waiting of all others.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/rng.h"
#include "extras/ranks/transport.h"

struct letter {
    struct letter *next;
    int from, tag;
    size_t bytes;
    void *data;
};

/* What a rank has posted for an exchange. */
struct posted {
    const void *send;
    const struct parts *out;
};

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, arrived;
    int64_t round; /* of barriers */
    bool dead;
    struct posted *posted;   /* [ranks] */
    struct letter **letters; /* [ranks] the oldest first */
    uint64_t shuffle;
    int (*of)(struct transport *t, void *ctx);
    void *ctx;
};

struct member {
    struct transport transport;
    struct world *world;
    pthread_t thread;
    void *receive; /* of the exchange under way */
    const struct parts *in;
    uint64_t exchanges;
    int status;
};

static struct member *member_of(struct transport *t) {
    return (struct member *)t;
}

static int died(struct error *err) {
    return fail(err, "another rank has ended");
}

static int barrier(struct transport *t, struct error *err) {
    struct world *w = member_of(t)->world;
    pthread_mutex_lock(&w->lock);
    const int64_t round = w->round;
    /* After a death who has arrived may have gone again. */
    if (!w->dead && ++w->arrived == w->ranks) {
        w->arrived = 0;
        w->round++;
        pthread_cond_broadcast(&w->changed);
    }
    while (w->round == round && !w->dead) pthread_cond_wait(&w->changed, &w->lock);
    const bool dead = w->round == round;
    pthread_mutex_unlock(&w->lock);
    return dead ? died(err) : 0;
}

static int start(struct transport *t, const void *send, const struct parts *out, void *receive,
                 const struct parts *in, struct error *err) {
    struct member *m = member_of(t);
    (void)err;
    m->world->posted[t->rank] = (struct posted){send, out};
    m->receive = receive;
    m->in = in;
    return 0;
}

/* Takes the messages of all ranks, in an order of its own. */
static int finish(struct transport *t, struct error *err) {
    struct member *m = member_of(t);
    if (barrier(t, err)) return -1;
    const uint64_t key = rng_key(m->world->shuffle + m->exchanges++, (uint64_t)t->rank);
    const int first = m->world->shuffle ? (int)(key % (uint64_t)t->ranks) : t->rank;
    const int way = m->world->shuffle && key >> 63 ? t->ranks - 1 : 1;
    for (int k = 0; k < t->ranks; k++) {
        const int from = (first + k * way) % t->ranks;
        const struct posted *p = &m->world->posted[from];
        const size_t bytes = p->out->bytes[t->rank];
        if (bytes != m->in->bytes[from])
            return fail(err, "rank %d sends %zu bytes to rank %d, which expects %zu", from, bytes,
                        t->rank, m->in->bytes[from]);
        if (bytes)
            memcpy((char *)m->receive + m->in->at[from],
                   (const char *)p->send + p->out->at[t->rank], bytes);
    }
    return barrier(t, err);
}

static int post(struct transport *t, int to, int tag, const void *data, size_t bytes,
                struct error *err) {
    struct world *w = member_of(t)->world;
    (void)err;
    struct letter *l = must_have(malloc(sizeof *l));
    *l = (struct letter){NULL, t->rank, tag, bytes, must_have(malloc(bytes + 1))};
    if (bytes) memcpy(l->data, data, bytes);
    pthread_mutex_lock(&w->lock);
    struct letter **last = &w->letters[to];
    while (*last) last = &(*last)->next;
    *last = l;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return 0;
}

/* Takes the first letter that fits out of the box; NULL: none. */
static struct letter *take(struct letter **box, int from, int tag) {
    for (; *box; box = &(*box)->next) {
        struct letter *l = *box;
        if ((from != ANY_RANK && l->from != from) || l->tag != tag) continue;
        *box = l->next;
        return l;
    }
    return NULL;
}

static int receive(struct transport *t, int from, int tag, void **data, struct message *out,
                   struct error *err) {
    struct world *w = member_of(t)->world;
    struct letter *l;
    pthread_mutex_lock(&w->lock);
    while (!(l = take(&w->letters[t->rank], from, tag)) && !w->dead)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    *data = NULL;
    if (!l) return died(err);
    *data = l->data;
    *out = (struct message){l->from, l->bytes};
    free(l);
    return 0;
}

static void die(struct transport *t, int status) {
    struct world *w = member_of(t)->world;
    (void)status;
    pthread_mutex_lock(&w->lock);
    w->dead = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void leave(struct transport *t) {
    (void)t;
}

static const struct transport_ops ops = {.close = leave,
                                         .barrier = barrier,
                                         .start = start,
                                         .finish = finish,
                                         .send = post,
                                         .receive = receive,
                                         .abort = die};

static void *live(void *arg) {
    struct member *m = arg;
    m->status = m->world->of(&m->transport, m->world->ctx);
    if (m->status) die(&m->transport, m->status);
    return NULL;
}

int transport_threads(int ranks, int nodes, uint64_t shuffle,
                      int (*of)(struct transport *t, void *ctx), void *ctx) {
    struct world w = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .ranks = ranks,
                      .posted = must_have(calloc((size_t)ranks, sizeof *w.posted)),
                      .letters = must_have(calloc((size_t)ranks, sizeof *w.letters)),
                      .shuffle = shuffle,
                      .of = of,
                      .ctx = ctx};
    struct member *members = must_have(calloc((size_t)ranks, sizeof *members));
    int status = 0;
    for (int r = 0; r < ranks; r++) {
        members[r] = (struct member){.transport = {.ops = &ops,
                                                   .name = "threads",
                                                   .rank = r,
                                                   .ranks = ranks,
                                                   .node = r / (ranks / nodes),
                                                   .nodes = nodes,
                                                   .phase = "the beginning"},
                                     .world = &w};
        if (pthread_create(&members[r].thread, NULL, live, &members[r])) abort();
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(members[r].thread, NULL);
        if (status == 0) status = members[r].status;
    }
    for (int r = 0; r < ranks; r++)
        for (struct letter *l; (l = w.letters[r]);) {
            w.letters[r] = l->next;
            free(l->data);
            free(l);
        }
    free(members);
    free(w.posted);
    free(w.letters);
    return status;
}
