/* SPDX-License-Identifier: MIT
 *
 * Rows of a frozen table in a Redis server, as online feature stores keep them: the bytes of a row under the
 * decimal number of the row. A request is one command for all its rows. One connection, used by one thread.
 */
#pragma once

#include "extras/library/frozen/frozen.h"

enum store_layout {
    STORE_KEYS, /* a key for each row: MGET */
    STORE_HASH, /* one hash with a field for each row: HMGET */
};

struct store;

/* Connects to the Unix socket of a server. NULL: err; also in a build without hiredis. */
struct store *store_open(const char *socket, struct error *err);
void store_close(struct store *s);

/* Deletes everything in the server, and stores the rows. *bytes: the memory that the server uses for them. */
int store_fill(struct store *s, enum store_layout layout, const struct frozen *t, int64_t *bytes,
               struct error *err);

/* Appends the request for lookups [first, last) of the batch; it is sent with the next store_receive(). */
int store_ask(struct store *s, enum store_layout layout, const struct batch *in, int64_t first,
              int64_t last, struct error *err);

/* Waits for the answer to the oldest request of `lookups` rows, and widens them to to[lookups][dim]. */
int store_receive(struct store *s, const struct frozen *t, int64_t lookups, float *to,
                  struct error *err);
