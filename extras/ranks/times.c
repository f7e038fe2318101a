/* SPDX-License-Identifier: MIT */
#include "extras/ranks/times.h"

#include <stdarg.h>
#include <stdio.h>

#include "kernels/shape.h"

void times_add_bytes(struct rank_times *x, const struct transport *t,
                     const struct transport_bytes before[CHANNELS]) {
    static const enum exchange of[CHANNELS] = {[CHANNEL_LENGTHS] = EXCHANGE_IDS,
                                               [CHANNEL_IDS] = EXCHANGE_IDS,
                                               [CHANNEL_OUTPUT] = EXCHANGE_OUTPUT,
                                               [CHANNEL_GRADIENT] = EXCHANGE_GRADIENT};
    for (int c = CHANNEL_LENGTHS; c <= CHANNEL_GRADIENT; c++) {
        x->exchange[of[c]].sent += t->bytes[c].sent - before[c].sent;
        x->exchange[of[c]].received += t->bytes[c].received - before[c].received;
    }
}

static void at_least(double *most, double x) {
    if (x > *most) *most = x;
}

int times_merge(struct rank_times *x, struct transport *t, struct rank_times *of_rank,
                struct error *err) {
    t->channel = CHANNEL_CONTROL;
    if (transport_all_gather(t, x, sizeof *x, of_rank, err)) return -1;
    for (int r = 0; r < t->ranks; r++) {
        const struct rank_times *own = &of_rank[r];
        at_least(&x->seconds, own->seconds);
        at_least(&x->forward, own->forward);
        at_least(&x->plan, own->plan);
        for (int s = 0; s < STAGE_COUNT; s++) at_least(&x->stage[s], own->stage[s]);
        x->disturbed |= own->disturbed;
        for (int e = 0; e < EXCHANGES; e++) {
            struct exchanged *to = &x->exchange[e];
            at_least(&to->seconds, own->exchange[e].seconds);
            to->sent = max64(to->sent, own->exchange[e].sent);
            to->received = max64(to->received, own->exchange[e].received);
            to->sent_all += own->exchange[e].sent;
        }
    }
    return 0;
}

/* --- counters of the record */

struct counters {
    struct place_counter *at;
    int count;
};

__attribute__((format(printf, 3, 4))) static void add(struct counters *c, double value,
                                                      const char *format, ...) {
    struct place_counter *to = &c->at[c->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(to->name, sizeof to->name, format, args);
    va_end(args);
    to->value = value;
}

static const char *const exchange_name[] = {"ids", "output", "gradient"};

static void add_exchange(struct counters *c, const char *rank, int e, const struct exchanged *x) {
    const char *name = exchange_name[e];
    add(c, 1e3 * x->seconds, "%sexchange_%s_ms", rank, name);
    add(c, (double)x->sent / (1 << 20), "%sexchange_%s_sent_mib", rank, name);
    add(c, (double)x->received / (1 << 20), "%sexchange_%s_received_mib", rank, name);
}

int times_counters(const struct rank_times *most, const struct rank_times *of_rank, int ranks,
                   bool iteration, struct place_counter *out) {
    static const char *const stages[STAGE_COUNT] = {"index", "zero", "reduce", "update"};
    struct counters c = {out, 0};
    for (int e = 0; e < EXCHANGES; e++) {
        const struct exchanged *x = &most->exchange[e];
        if (x->seconds == 0) continue;
        add_exchange(&c, "", e, x);
        add(&c, (double)x->sent_all / (1 << 20), "exchange_%s_all_mib", exchange_name[e]);
    }
    for (int k = 0; k < ranks; k++) {
        const struct rank_times *own = &of_rank[k];
        char rank[20];
        snprintf(rank, sizeof rank, "rank%d_", k);
        add(&c, 1e3 * own->seconds, "%sms", rank);
        if (iteration) add(&c, 1e3 * own->forward, "%sforward_ms", rank);
        for (int s = 0; s < STAGE_COUNT; s++)
            if (own->stage[s] > 0) add(&c, 1e3 * own->stage[s], "%s%s_ms", rank, stages[s]);
        for (int e = 0; e < EXCHANGES; e++)
            if (most->exchange[e].seconds > 0) add_exchange(&c, rank, e, &own->exchange[e]);
    }
    return c.count;
}
