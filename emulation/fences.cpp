/* SPDX-License-Identifier: MIT */
#include "emulation/fences.h"

#include <cstdlib>

#include "emulation/scheduler.h"

namespace emulation {

/* A fence and a later atomic of one thread. What an atomic sees is the newest of its address and all earlier ones:
 * between them are only atomics. */
struct Release {
    uint64_t block;
    Token *tokens[2]; /* as in Fences */
    const Release *earlier;
};

/* An address on which an atomic has released something. */
struct Place {
    const void *p;
    const Release *newest;
    Place *next; /* in its bucket */
};

struct Observed {
    const Place *place;
    const Release *newest;
    Observed *next;
};

/* Memory for one launch. Not a standard container: its code could come from an instrumented object. */
template <class T> struct Pool {
    struct Chunk {
        Chunk *earlier;
        T items[256];
    };
    Chunk *chunk;
    unsigned used;

    T *take() {
        if (!chunk || used == sizeof chunk->items / sizeof *chunk->items) {
            auto *more = static_cast<Chunk *>(malloc(sizeof(Chunk)));
            if (!more) fatal("no memory for fences");
            more->earlier = chunk;
            chunk = more;
            used = 0;
        }
        return &chunk->items[used++];
    }
    void clear() {
        while (chunk) {
            Chunk *last = chunk;
            chunk = last->earlier;
            free(last); /* the race detector forgets the tokens in it, too */
        }
    }
};

enum { BUCKETS = 4096 };

static struct {
    bool any; /* fence in this launch */
    Pool<Token> tokens;
    Pool<Release> releases;
    Pool<Place> places;
    Pool<Observed> observed;
    Place *buckets[BUCKETS];
} all;

void fences_begin_launch() {
    if (!all.any) return;
    all.any = false;
    all.tokens.clear();
    all.releases.clear();
    all.places.clear();
    all.observed.clear();
    for (Place *&bucket : all.buckets) bucket = nullptr;
}

static Place *place_of(const void *p, bool make) {
    uint64_t hash = reinterpret_cast<uintptr_t>(p) * 0x9e3779b97f4a7c15u;
    Place *&bucket = all.buckets[(hash >> 40) % BUCKETS];
    for (Place *i = bucket; i; i = i->next)
        if (i->p == p) return i;
    if (!make) return nullptr;
    Place *place = all.places.take();
    *place = {p, nullptr, bucket};
    return bucket = place;
}

static void observe(Fences &f, const Place *place) {
    for (Observed *i = f.observed; i; i = i->next)
        if (i->place == place) {
            i->newest = place->newest;
            return;
        }
    Observed *seen = all.observed.take();
    *seen = {place, place->newest, f.observed};
    f.observed = seen;
}

void atomic_done(const void *p, bool wrote) {
    if (!all.any || !running().in_thread) return;
    Fences &f = this_thread().fences;
    bool releases = wrote && f.released[int(Scope::block)];
    Place *place = place_of(p, releases);
    if (!place) return;
    if (place->newest) observe(f, place);
    if (!releases) return;
    Release *release = all.releases.take();
    *release = {block().linear, {f.released[0], f.released[1]}, place->newest};
    place->newest = release;
}

static void acquire(const Observed *seen, Scope scope) {
    for (const Release *i = seen->newest; i; i = i->earlier) {
        bool same_block = i->block == block().linear;
        Token *token = same_block               ? i->tokens[int(Scope::block)]
                       : scope == Scope::device ? i->tokens[int(Scope::device)]
                                                : nullptr;
        if (token) token->acquire();
    }
}

void fence(Scope scope) {
    switch_point();
    if (!with_tsan() || !running().in_thread) return;
    all.any = true;
    Fences &f = this_thread().fences;
    for (const Observed *i = f.observed; i; i = i->next) acquire(i, scope);
    if (scope == Scope::device) f.observed = nullptr;
    Token *token = all.tokens.take();
    token->release();
    f.released[int(Scope::block)] = token;
    if (scope == Scope::device) f.released[int(Scope::device)] = token;
}

} // namespace emulation
