/* SPDX-License-Identifier: MIT
 *
 * Rank 0 has whole batches and whole tables, and deals them out: to each rank its bags, and the rows of its
 * shards.
 */
#pragma once

#include "harness/workload/tables.h"
#include "extras/ranks/sharding.h"
#include "extras/ranks/transport.h"
#include "kernels/shape.h"

/* What all ranks know of a batch that is dealt out. */
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

/* Gives every rank the rows of its shards, in tables of these shapes. whole: on rank 0, NULL elsewhere. Collective. */
int deal_tables(struct transport *t, const struct sharding *s, const struct table_shape *shapes,
                const struct table_shape *local, const struct table_set *whole,
                struct table_set *own, struct error *err);

/* Rows of a shard as a message: array by array, of `rows` rows. */
size_t deal_rows_bytes(const struct sharding *s, const struct shard *part,
                       const struct table_shape *shapes, int64_t rows);

/* The rows in such a message. shape: of the shard. */
struct table deal_rows_in_message(const struct table_shape *shape, int64_t rows, void *data);

/* DEAL_PUT_AGAIN: after another rank's; what both have is only compared. */
enum deal_move { DEAL_TAKE, DEAL_PUT, DEAL_PUT_AGAIN };

/* Copies the gradient or output rows of bags begin .. end-1 from `all`, laid out as the whole batch, to `own`, laid out
 * as these bags alone (DEAL_TAKE), or back (DEAL_PUT). */
void deal_move_bags(const struct batch *whole, int64_t begin, int64_t end, enum deal_move how,
                    void *all, void *own);

/* Copies rows first .. first+count-1 of a shard from the table, whose first row in memory is row `begin`, to `rows`; or
 * puts them there. shape: of the shard. Returns false if what was compared differs. */
bool deal_move(const struct sharding *s, const struct shard *part, const struct table_shape *shape,
               enum deal_move how, struct table *whole, int64_t begin, int64_t first, int64_t count,
               struct table *rows);

/* The rows of a shard that are among rows begin .. end-1 of its table: shard rows *first .. *first+count-1. */
int64_t deal_rows_in(const struct shard *part, int64_t begin, int64_t end, int64_t *first);

enum { TAG_SLICE = 1, TAG_ROWS, TAG_OUTPUT };
