/* SPDX-License-Identifier: MIT
 *
 * Messages between workers and servers: a head, then
 *
 *   pull  count[shards], rows
 *   push  count[shards], rows, gradient rows of each shard
 *   rows  weights of each shard, then a byte per row: is it admitted?
 *
 * Rows are int64 numbers in the shard, all else is fp32; the shards are those of the server, in order.
 */
#pragma once

#include "extras/ranks/route.h"
#include "extras/ranks/server.h"

enum { TAG_REQUEST = 16, TAG_ANSWER };

enum request_kind { REQUEST_PULL, REQUEST_PUSH, REQUEST_END };

struct request_head {
    int64_t kind;
    uint64_t tables;        /* server_fingerprint() */
    int64_t clock, version; /* version: of the pull that a push comes from */
};

/* A server that lets a worker wait says so from time to time. */
enum answer_kind { ANSWER_ROWS, ANSWER_WAIT, ANSWER_OTHER_TABLES };

struct answer_head {
    int64_t kind, version;
};

/* Seconds between two messages to a worker that waits. */
#define SERVER_BEAT 0.5

/* The shards of all servers. Refuses other shardings, and kernels that do not fit. */
int server_cut(struct sharding *out, const struct transport *t, const struct server_setup *setup,
               struct error *err);

/* Of what servers and workers must agree on. */
uint64_t server_fingerprint(const struct server_setup *setup);
