/* SPDX-License-Identifier: MIT
 *
 * Messages between workers and servers: a head, then
 *
 *   pull  count[num_tables], rows
 *   push  count[num_tables], rows, gradient rows
 *   rows  weights, then a byte per row: is it admitted?
 *
 * All by table. Rows are int64 numbers in the server's part of the table, all else is fp32.
 */
#pragma once

#include "extras/ranks/route.h"
#include "extras/ranks/server.h"

enum { TAG_REQUEST = 16, TAG_ANSWER };

enum request_kind { REQUEST_PULL, REQUEST_PUSH, REQUEST_END };

struct request_head {
    int64_t kind;
    int64_t clock, version; /* version: of the pull that a push comes from */
};

struct answer_head {
    int64_t version;
};

/* Refuses numbers of servers and kernels that do not fit. */
int server_check(const struct transport *t, const struct server_setup *setup, struct error *err);
