/* SPDX-License-Identifier: MIT
 *
 * What an iteration costs on several ranks: the bytes of extras/ranks/formulas.h over links, and the bytes of the
 * local lookup and step at measured speeds.
 *
 *   seconds of an exchange = call + alpha * messages + bytes / speed, for the links of a node and for the
 *                            network, plus packing and unpacking, and the copy of outputs that are
 *                            not sent, at the speed of a copy, or one of their own
 *   seconds of a lookup    = touched rows / random rows + gathered rows / gather
 *   seconds of an update   = 2 * touched rows with states / random rows + gathered gradient rows / gather
 *                            + lookups * seconds of grouping one
 *
 * The first line is Hockney's model (Parallel Computing 20, 1994). All ranks wait for the slowest one in every
 * stage, so the time of an iteration is the sum, over stages, of the largest of all ranks. Of bytes and
 * messages the larger of both directions counts: links are full duplex.
 */
#pragma once

#include "extras/ranks/formulas.h"

struct link {
    double alpha; /* seconds of a message */
    double speed; /* bytes per second, of a rank and direction */
};

enum { LINK_NODE, LINK_NETWORK, LINKS };

enum cost_stage {
    COST_LENGTHS,
    COST_IDS,
    COST_LOOKUP,
    COST_OUTPUT,
    COST_GRADIENT,
    COST_UPDATE,
    COST_STAGES
};

/* A rank, while all ranks are at work. Bytes per second count reads and writes. */
struct machine {
    int ranks, nodes;
    struct link link[LINKS];
    double copy, rows, gather; /* stream; random rows of memory; gathered rows of a cache */
    double pack[COST_STAGES];  /* of what an exchange packs and unpacks; 0: as copy */
    double update;             /* the share of rows and gather that an update reaches; 0: all */
    double grouping;           /* seconds of a lookup of a step, besides its bytes */
    double call;               /* seconds of an exchange, besides its messages */
    int64_t memory;            /* bytes of a rank */
};

extern const char *const cost_stage_names[COST_STAGES];

/* What a rank has to do. Loads add up, but for the messages. */
struct load {
    struct {
        double sent, received;
    } bytes[COST_STAGES][LINKS];
    double kept[COST_STAGES]; /* bytes to itself: packed, copied and unpacked */
    double looked, gathered;  /* bytes of rows that a lookup reads from memory; that it adds up */
    double copied;            /* bytes of outputs that no exchange moves */
    double updated,
        added;      /* bytes of rows that a step reads and writes; gradient rows it adds up */
    double lookups; /* of a step */
    double tables;  /* bytes of rows with states */
    int shards, with_output; /* > 0: ranks send it gradients; it sends them outputs */
};

/* Seconds of every stage of every rank: [ranks]. loads: [ranks]. */
void cost_stages(const struct machine *m, const struct load *loads, double (*seconds)[COST_STAGES]);

struct cost {
    double seconds;            /* of an iteration */
    double stage[COST_STAGES]; /* its parts: of the slowest rank each */
    double most, mean;         /* over ranks, of a rank's own stages */
    double lacks;              /* bytes that do not fit into the memory of ranks; 0: feasible */
};

struct cost cost_of(const struct machine *m, const struct load *loads, int ring);

/* Rows with states, and what the routes of `ring` batches hold: ids and gradients as received and in order,
 * and the largest message. */
double cost_memory(const struct load *l, int ring);
