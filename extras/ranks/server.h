/* SPDX-License-Identifier: MIT
 *
 * A parameter server. The first ranks of a transport are servers: server s of S has rows s, s + S, ... of each table.
 * The others are workers and have bags. In a clock a worker pulls the rows that its bags look up, runs a forward,
 * makes a gradient of the outputs, merges it by rows, and pushes rows and gradients. A server applies pushes by a step
 * kernel. (As ps-lite, BytePS and Paddle Fleet; without Fleet's geo mode.)
 *
 *   staleness 0         synchronous: pushes of a clock are added in the order of the workers, in one step of the rule
 *   staleness s > 0     stale synchronous parallel (Ho et al., NIPS 2013): a pull of clock c is answered when all
 *                       workers have pushed clock c - s - 1. Each push is a step when it arrives
 *   STALENESS_ANY       the same without waiting: a_sync of Paddle Fleet
 *
 * A server has one thread that answers and applies, so a row is never seen half updated, and a worker sees its own
 * pushes. Steps are numbered by server, so a table without rows in a push advances too.
 * Rows and gradients travel in fp32.
 *
 * Two distances are counted. A pull has a distance in clocks: how far its worker is ahead of the slowest worker,
 * at most s. A push has a distance in versions: the pushes that the server has applied since the pull before it.
 *
 * Functions return 0, or -1 and fill err.
 */
#pragma once

#include "extras/library/embfuse.h"
#include "harness/workload/tables.h"
#include "extras/ranks/transport.h"

enum { STALENESS_ANY = -1, DISTANCES = 1024 };

/* All ranks have the same setup. It outlives servers and workers. */
struct server_setup {
    int servers;
    const struct table_shape *shapes; /* whole tables, with a row for each server at least */
    const struct rule *rules;         /* [num_tables] */
    int32_t num_tables;
    uint64_t seed; /* of initial values */
    int64_t staleness;
    const struct kernel *step;               /* of the servers */
    const struct kernel *forward, *gradient; /* of the workers; the gradient is merged */
    int threads;
    /* Which rows train: see embfuse_admit_ids(). Kind, threshold, probability and seed count, the rest is the
     * server's. A touch is a pull of the row; a row is pulled once per clock of a worker. NULL: all */
    const struct embfuse_admission *admission;
};

/* --- servers */

struct server_report {
    int64_t pulls, pushes, rows; /* handled; rows applied */
    int64_t versions[DISTANCES]; /* pushes by distance in versions; the last one: or more */
    int64_t clocks[DISTANCES];   /* pulls by distance in clocks */
};

struct server;

/* server_close() in any case. */
int server_open(struct server **out, struct transport *t, const struct server_setup *setup,
                struct error *err);
/* Handles messages until all workers have ended. */
int server_serve(struct server *s, struct error *err);
/* The tables of this server. */
struct table_set *server_tables(struct server *s);
struct server_report server_report(const struct server *s);
void server_close(struct server *s);

/* --- workers */

/* Turns output rows into gradient rows, in place. local: the worker's batch, whose ids are row numbers of its small
 * tables. */
typedef void worker_gradient(void *ctx, const struct batch *local, void *rows);

struct worker_report {
    int64_t clocks, pushed;   /* pushed: rows */
    int64_t lookups, refused; /* lookups of rows that are not admitted count as padding */
};

struct worker;

/* worker_close() in any case. */
int worker_open(struct worker **out, struct transport *t, const struct server_setup *setup,
                struct error *err);
/* One clock with a batch: pull, forward, gradient, push. */
int worker_clock(struct worker *w, const struct batch *in, worker_gradient *gradient, void *ctx,
                 struct error *err);
struct worker_report worker_report(const struct worker *w);
/* Tells the servers that no more clocks come. */
int worker_end(struct worker *w, struct error *err);
void worker_close(struct worker *w);
