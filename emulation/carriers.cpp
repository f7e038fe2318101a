/* SPDX-License-Identifier: MIT */
#include "emulation/carriers.h"

#include "emulation/sanitizers.h"

namespace emulation {

enum { MOST = 2048, AT_LEAST = 128 /* under the race detector */ };

struct Fibres {
    Fibre *all[MOST];
    unsigned count;

    void put(Fibre *fibre) {
        all[count++] = fibre;
    }
    Fibre *draw(Random &random) {
        unsigned at = random.below(count);
        Fibre *drawn = all[at];
        all[at] = all[--count];
        return drawn;
    }
};

static struct {
    Fibres made, idle, knowing; /* knowing: idle, but must be renewed */
    Random *random;
    void (*work)();
} now;

static Fibre *make() {
    if (now.made.count == MOST) fatal("more than %d fibres", MOST);
    now.made.put(fibre_create(now.work));
    return now.made.all[now.made.count - 1];
}

void carriers_renew(Random &random, void (*work)()) {
    now.random = &random;
    now.work = work;
    while (with_tsan() && now.made.count < AT_LEAST) make();
    now.idle.count = 0;
    for (unsigned i = 0; i < now.made.count; i++) now.idle.put(now.made.all[i]);
    now.knowing.count = 0;
    Token::any_acquired = false;
}

Fibre *carrier_take() {
    if (!with_tsan()) return now.idle.count ? now.idle.all[--now.idle.count] : make();
    if (now.idle.count) return now.idle.draw(*now.random);
    if (!now.knowing.count) return make();
    Fibre *drawn = now.knowing.draw(*now.random);
    fibre_renew(drawn);
    return drawn;
}

void carrier_give(Fibre *fibre) {
    const bool knows = with_tsan() && settings().renew && Token::any_acquired;
    (knows ? now.knowing : now.idle).put(fibre);
}

} // namespace emulation
