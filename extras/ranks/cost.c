/* SPDX-License-Identifier: MIT */
#include "extras/ranks/cost.h"

#include <stdlib.h>

#include "harness/memory.h"

const char *const cost_stage_names[COST_STAGES] = {
    [COST_LENGTHS] = "lengths",    [COST_IDS] = "ids",
    [COST_LOOKUP] = "lookup",      [COST_OUTPUT] = "outputs",
    [COST_GRADIENT] = "gradients", [COST_UPDATE] = "update"};

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* Ranks with shards; outputs: with shards that send outputs. In a node and in all. */
struct owners {
    int *node, all;
};

static double exchange_seconds(const struct machine *m, const struct load *l, enum cost_stage s,
                               const struct owners *owners, int rank) {
    const int on_node = m->ranks / m->nodes, node = rank / on_node;
    const int own = s == COST_OUTPUT ? l->with_output > 0 : l->shards > 0;
    /* All ranks have something for every owner. */
    const int out[LINKS] = {owners->node[node] - own, owners->all - owners->node[node]};
    const int in[LINKS] = {own * (on_node - 1), own * (m->ranks - on_node)};
    const bool any = out[0] + out[1] + in[0] + in[1] > 0;
    double seconds = any ? m->call : 0, moved = 3 * l->kept[s] + (s == COST_OUTPUT ? l->copied : 0);
    for (int k = 0; k < LINKS; k++) {
        const double sent = l->bytes[s][k].sent, received = l->bytes[s][k].received;
        const int messages = out[k] > in[k] ? out[k] : in[k];
        seconds += m->link[k].alpha * messages + larger(sent, received) / m->link[k].speed;
        moved += sent + received;
    }
    return seconds + 2 * moved / (m->pack[s] > 0 ? m->pack[s] : m->copy);
}

void cost_stages(const struct machine *m, const struct load *loads,
                 double (*seconds)[COST_STAGES]) {
    static const enum cost_stage exchanges[] = {COST_LENGTHS, COST_IDS, COST_OUTPUT, COST_GRADIENT};
    struct owners owners = {must_have(calloc((size_t)m->nodes, sizeof *owners.node)), 0};
    const int on_node = m->ranks / m->nodes;
    for (size_t e = 0; e < sizeof exchanges / sizeof *exchanges; e++) {
        const enum cost_stage s = exchanges[e];
        owners.all = 0;
        for (int n = 0; n < m->nodes; n++) owners.node[n] = 0;
        for (int r = 0; r < m->ranks; r++) {
            const int own = s == COST_OUTPUT ? loads[r].with_output > 0 : loads[r].shards > 0;
            owners.node[r / on_node] += own;
            owners.all += own;
        }
        for (int r = 0; r < m->ranks; r++)
            seconds[r][s] = exchange_seconds(m, &loads[r], s, &owners, r);
    }
    for (int r = 0; r < m->ranks; r++) {
        const struct load *l = &loads[r];
        seconds[r][COST_LOOKUP] = l->looked / m->rows + l->gathered / m->gather;
        seconds[r][COST_UPDATE] =
            (2 * l->updated / m->rows + l->added / m->gather) / (m->update > 0 ? m->update : 1) +
            l->lookups * m->grouping;
    }
    free(owners.node);
}

double cost_memory(const struct load *l, int ring) {
    double held = 0, most = 0;
    for (int s = 0; s < COST_STAGES; s++) {
        const double out = l->bytes[s][0].sent + l->bytes[s][1].sent + l->kept[s],
                     in = l->bytes[s][0].received + l->bytes[s][1].received + l->kept[s];
        held += 2 * (s == COST_OUTPUT ? out : in);
        most = larger(most, out);
    }
    return l->tables + ring * (held + most);
}

struct cost cost_of(const struct machine *m, const struct load *loads, int ring) {
    struct cost c = {0};
    double(*seconds)[COST_STAGES] = must_have(calloc((size_t)m->ranks, sizeof *seconds));
    cost_stages(m, loads, seconds);
    for (int s = 0; s < COST_STAGES; s++) {
        double most = 0;
        for (int r = 0; r < m->ranks; r++) most = larger(most, seconds[r][s]);
        c.stage[s] = most;
        c.seconds += most;
    }
    for (int r = 0; r < m->ranks; r++) {
        double own = 0;
        for (int s = 0; s < COST_STAGES; s++) own += seconds[r][s];
        c.most = larger(c.most, own);
        c.mean += own / m->ranks;
        c.lacks += larger(0, cost_memory(&loads[r], ring) - (double)m->memory);
    }
    free(seconds);
    return c;
}
