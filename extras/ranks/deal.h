/* SPDX-License-Identifier: MIT
 *
 * Rank 0 has whole batches and deals their bags out to the ranks. The other way, it puts rows of shards and of outputs
 * into whole tables and outputs.
 */
#pragma once

#include "harness/workload/tables.h"
#include "extras/ranks/sharding.h"
#include "extras/ranks/transport.h"
#include "kernels/shape.h"

/* All ranks know this of a batch that is dealt out. */
struct deal {
    struct transport *transport;
    const struct table_shape *shapes; /* whole, [num_tables] */
    const struct feature *features;   /* [num_features] */
    int32_t num_tables, num_features;
    int64_t bags; /* of the whole batch */
    enum id_type id_type;
    enum dtype grad_type;
    bool weighted;
};

/* The deal of a batch whose shape this rank has. */
struct deal deal_of(struct transport *t, const struct batch *whole);

/* Copies bags begin .. end-1 of a batch to a batch of their own. Free it with deal_free(). */
void deal_cut(const struct deal *d, const struct batch *whole, int64_t begin, int64_t end,
              struct batch *own);

/* Bytes of the gradient of a batch. */
static inline size_t deal_grad_bytes(const struct batch *own) {
    return (size_t)(own->grad_elements * dtype_bytes(own->grad_type));
}

/* Gives every rank its bags of a batch. whole: on rank 0, NULL elsewhere. Collective. */
int deal_batch(const struct deal *d, const struct batch *whole, struct batch *own,
               struct error *err);
void deal_free(struct batch *own);

/* Rows of a shard as a message: array by array, of `rows` rows. */
size_t deal_rows_bytes(const struct sharding *s, const struct shard *part,
                       const struct table_shape *shapes, int64_t rows);

/* The rows in such a message. shape: of the shard. */
struct table deal_rows_in_message(const struct table_shape *shape, int64_t rows, void *data);

enum deal_move { DEAL_TAKE, DEAL_PUT };

/* Copies the gradient or output rows of bags begin .. end-1 from `all`, laid out as the whole batch, to `own`, laid out
 * as these bags alone (DEAL_TAKE), or back (DEAL_PUT). */
void deal_move_bags(const struct batch *whole, int64_t begin, int64_t end, enum deal_move how,
                    void *all, void *own);

/* Puts rows first .. first+count-1 of a shard into the table, whose first row in memory is row `begin`. shape: of the
 * shard. again: another rank's copy of the same table is there, which is only compared. Returns false if it differs. */
bool deal_put_rows(const struct sharding *s, const struct shard *part,
                   const struct table_shape *shape, bool again, struct table *whole, int64_t begin,
                   int64_t first, int64_t count, const struct table *rows);

/* The rows of a shard that are among rows begin .. end-1 of its table: shard rows *first .. *first+count-1. */
int64_t deal_rows_in(const struct shard *part, int64_t begin, int64_t end, int64_t *first);

enum { TAG_SLICE = 1, TAG_ROWS, TAG_OUTPUT };
