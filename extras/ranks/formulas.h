/* SPDX-License-Identifier: MIT
 *
 * The bytes that ranks send for one batch: what a sharding costs before anybody runs it. One function,
 * flow_of(), has the sizes; all others only say how many bags, lookups and rows there are:
 *
 *   formulas_count    counted in the ids: what the transport will count, to the byte
 *   formulas_expect   expected from the lengths of the bags, if all rows are equally likely
 *   formulas_closed   in closed form, from means: for any number of ranks
 *
 * Closed forms, bytes that a rank sends on average. W ranks, B bags of each, F features of L lookups and D
 * columns, i bytes of an id, e of an element of outputs and gradients; P ranks have a part of a table:
 *
 *   sharding     P   lengths           ids                    outputs, and gradients
 *   table        1   (W-1)/W F B 4     (W-1)/W F B L i        (W-1)/W F B D e
 *   row          W   (W-1) F B 4       (W-1)/W F B L i        (W-1) F B D e h
 *   column       W   (W-1) F B 4       (W-1) F B L i          (W-1)/W F B D e
 *   table-row    R   R(W-1)/W F B 4    (W-1)/W F B L i        R(W-1)/W F B D e h; R ranks are a node
 *   data         W   (W-1) F B 4       (W-1) F B L i          no outputs; gradients (W-1) F B D e
 *
 * h is 1 if a bag's row goes to all ranks that have rows of the table (an all-gather, as in TorchRec), and
 * 1 - (1 - 1/P)^L if it goes only to those that have a row of the bag. The forms of TorchRec's flows are in
 * its sources (torchrec/distributed/dist_data.py, embeddingbag.py); dist_data.py also sends 8-byte splits,
 * which ranks here derive from the lengths. Means of tables that are cut by rows have a second length per
 * bag, and per-sample weights are 4 bytes of each id.
 */
#pragma once

#include "extras/ranks/sharding.h"

/* Bytes of one batch from the rank with the bags to the rank with the shards; outputs travel back. */
struct flow {
    double lengths, ids, output, gradient;
};

/* What one feature needs of one shard, for the bags of one rank. */
struct travel {
    double bags;     /* of that rank */
    double lookups;  /* that belong to the shard */
    double touching; /* bags with such a lookup; of a sequence: lookups */
};

/* in: types, weights, and the feature with its pooling. columns: of the shard. */
struct flow flow_of(enum sharding_kind kind, const struct batch *in, const struct feature *feature,
                    int32_t columns, bool all_rows, struct travel travel);

static inline void flow_add(struct flow *to, struct flow x, double times) {
    to->lengths += x.lengths * times;
    to->ids += x.ids * times;
    to->output += x.output * times;
    to->gradient += x.gradient * times;
}

/* What feature f needs of each rank for bags begin .. end-1, counted or expected. to: [ranks] */
void formulas_travel(const struct sharding *s, const struct batch *in, int32_t f, int64_t begin,
                     int64_t end, bool expected, struct travel *to);

/* pairs: [ranks][ranks], [r*ranks + d] is from the bags of rank r to the shards of rank d; r == d stays
 * on the rank. */
void formulas_count(const struct sharding *s, const struct batch *whole, bool all_rows,
                    struct flow *pairs);
void formulas_expect(const struct sharding *s, const struct batch *whole, bool all_rows,
                     struct flow *pairs);

/* Bags with at least one of their lookups on a part that gets `share` of all lookups. */
double formulas_touch(double share, double lookups);

/* Features that are alike, on ranks that are alike. */
struct closed {
    int ranks, on_node; /* ranks of a node */
    double bags;        /* of a rank */
    double features, lookups /* of a bag */, dim;
    double rows; /* of the table of each feature; for data-dense */
    double id_bytes, element;
};

/* The mean over ranks of the bytes that a rank sends to others. */
struct flow formulas_closed(enum sharding_kind kind, bool all_rows, const struct closed *c);
