/* SPDX-License-Identifier: MIT
 *
 * Training on a parameter server, over MPI: rows learn the rows of a teacher from the sums of bags (least squares).
 * Synchronous, with bounded staleness, and without a bound; then with a slow worker, and with admission. Prints a line
 * of JSON for each run.
 *
 *   server SERVERS CLOCKS RULE
 *
 * Rates are the sum of the workers' clocks per second. Drift is the distance of the weights from the
 * synchronous run, over the distance that it went.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/measure/ceiling.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/workload.h"
#include "extras/ranks/program.h"
#include "extras/ranks/server.h"

/* The learning rate, of every rule. */
#define RATE 0.1f

/* SLOW: how much longer a clock of the slow worker takes. */
enum { RING = 8, CLOCKS_MOST = 100000, SLOW = 10 };

static const char spec_text[] =
    "workload server\ntables 4\nrows 50000\ndim 32\nbatch 512\nlength fixed 8\nids zipf\n"
    "alpha 1.05\nrule %s\n";

struct mode {
    const char *name;
    int64_t staleness;
    const struct embfuse_admission *admission;
    bool slow; /* the last worker is */
};

/* What a run gives, on every rank; rank 0 adds up. */
struct result {
    struct server_report server;
    struct worker_report worker;
    double rate;        /* of a worker: clocks per second */
    double apart, gone; /* of a server: squared distances */
    int64_t sent;       /* bytes */
};

struct study {
    struct transport *transport;
    struct server_setup setup;
    struct workload load;    /* of a worker: batches of its own */
    struct table_set start;  /* of a server: weights before the training */
    struct table_set synced; /* and after the synchronous run */
    int clocks, workers;
    double *loss; /* [clocks] */
    double clock; /* seconds of a clock in the run without a bound */
};

static void sleep_for(double seconds) {
    const struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&t, NULL);
}

/* --- a worker */

struct lesson {
    struct study *study;
    int batch;
    double loss;
};

/* The rows of the teacher are initial values of another seed. */
static void subtract_teacher(const struct batch *in, int32_t f, int64_t bag, float *row) {
    const struct feature *x = &in->features[f];
    const int32_t dim = in->tables[x->table].dim;
    const int64_t *at = &in->offsets[x->first_bag + bag];
    for (int64_t i = at[0]; i < at[1]; i++) {
        const uint32_t key =
            initial_key(2, x->table, &in->tables[x->table].part, TABLE_WEIGHT, batch_id(in, i));
        for (int32_t d = 0; d < dim; d++) row[d] -= initial_weight(key, d);
    }
}

/* Half the squared distance, as a mean over bags and columns. Its gradient is of a bag's mean over columns, so that
 * it does not depend on the number of workers. */
static void learn(void *ctx, const struct batch *local, void *rows) {
    struct lesson *x = ctx;
    const struct batch *in = &x->study->load.batches[x->batch];
    int64_t count = 0;
    x->loss = 0;
    for (int32_t f = 0; f < in->num_features; f++)
        for (int64_t b = 0; b < in->features[f].bags; b++) {
            const int32_t dim = local->tables[local->features[f].table].dim;
            float *row =
                (float *)rows + local->features[f].grad_offset + b * local->features[f].grad_stride;
            subtract_teacher(in, f, b, row);
            for (int32_t d = 0; d < dim; d++) {
                x->loss += 0.5 * (double)row[d] * row[d];
                row[d] /= (float)dim;
            }
            count += dim;
        }
    x->loss /= (double)count;
}

static int labour(struct study *x, const struct mode *m, struct result *out, struct error *err) {
    struct worker *w;
    int status = worker_open(&w, x->transport, &x->setup, err);
    const bool slow = m->slow && x->transport->rank == x->transport->ranks - 1;
    const double began = clock_seconds();
    for (int c = 0; status == 0 && c < x->clocks; c++) {
        struct lesson lesson = {.study = x, .batch = c % x->load.ring};
        status = worker_clock(w, &x->load.batches[lesson.batch], learn, &lesson, err);
        x->loss[c] = lesson.loss;
        if (slow) sleep_for((SLOW - 1) * x->clock);
    }
    out->rate = x->clocks / (clock_seconds() - began);
    if (status == 0) status = worker_end(w, err);
    out->worker = worker_report(w);
    worker_close(w);
    return status;
}

/* --- a server */

static double squared_distance(const struct table_set *a, const struct table_set *b) {
    double sum = 0;
    for (int32_t t = 0; t < a->count; t++)
        for (int64_t r = 0; r < a->shapes[t].rows; r++) {
            const float *x = array_row(&a->tables[t].weight, r),
                        *y = array_row(&b->tables[t].weight, r);
            for (int32_t d = 0; d < a->shapes[t].dim; d++) {
                const double apart = (double)x[d] - (double)y[d];
                sum += apart * apart;
            }
        }
    return sum;
}

static int copy_tables(const struct table_set *from, struct table_set *to, struct error *err) {
    /* The shapes of a server end with it. */
    struct table_shape *shapes = must_have(calloc((size_t)from->count, sizeof *shapes));
    memcpy(shapes, from->shapes, (size_t)from->count * sizeof *shapes);
    if (tables_create(to, shapes, from->count, from->seed, err)) return -1;
    for (int32_t t = 0; t < from->count; t++)
        memcpy(to->tables[t].weight.data, from->tables[t].weight.data,
               table_memory_bytes(&shapes[t], TABLE_WEIGHT));
    return 0;
}

static int serve(struct study *x, struct result *out, struct error *err) {
    struct server *s;
    int status = server_open(&s, x->transport, &x->setup, err);
    struct table_set *tables = server_tables(s);
    if (status == 0 && !x->start.count) status = copy_tables(tables, &x->start, err);
    if (status == 0) status = server_serve(s, err);
    if (status == 0 && !x->synced.count) status = copy_tables(tables, &x->synced, err);
    if (status == 0) {
        out->apart = squared_distance(tables, &x->synced);
        out->gone = squared_distance(&x->start, &x->synced);
        out->server = server_report(s);
    }
    server_close(s);
    return status;
}

/* --- a line */

static void print_histogram(const char *name, const int64_t *count) {
    int last = DISTANCES - 1;
    while (last > 0 && !count[last]) last--;
    printf(", \"%s\": [", name);
    for (int d = 0; d <= last; d++) printf("%s%lld", d ? ", " : "", (long long)count[d]);
    printf("]");
}

/* Clocks per second of all workers, if a clock takes `clock` seconds, and SLOW times that on one of them: the others
 * end when the slow one is `staleness` clocks behind. */
static double predicted_rate(const struct study *x, const struct mode *m) {
    const double slow = x->clock * SLOW, alone = x->clocks * x->clock;
    double bound = m->staleness == STALENESS_ANY ? 0 : (x->clocks - (double)m->staleness) * slow;
    if (bound < alone) bound = alone;
    return (x->workers - 1) * x->clocks / bound + 1 / slow;
}

static void print_run(const struct study *x, const struct mode *m, const struct result *r,
                      const double *loss) {
    int64_t pushed = 0, refused = 0, lookups = 0, sent = 0, versions[DISTANCES] = {0},
            clocks[DISTANCES] = {0}, applied = 0;
    double rate = 0, apart = 0, gone = 0;
    for (int i = 0; i < x->transport->ranks; i++) {
        pushed += r[i].worker.pushed;
        refused += r[i].worker.refused;
        lookups += r[i].worker.lookups;
        applied += r[i].server.rows;
        sent += r[i].sent;
        rate += r[i].rate;
        apart += r[i].apart;
        gone += r[i].gone;
        for (int d = 0; d < DISTANCES; d++)
            versions[d] += r[i].server.versions[d], clocks[d] += r[i].server.clocks[d];
    }
    printf("{\"mode\": \"%s\", \"staleness\": %lld, \"slow\": %d, \"servers\": %d, "
           "\"workers\": %d, \"cpus\": %ld, \"rule\": \"%s\", \"clocks\": %d, \"rate\": %.6g, "
           "\"predicted\": %.6g, \"lookups\": %lld, \"pushed\": %lld, \"applied\": %lld, "
           "\"refused\": %.6g, \"sent\": %lld, \"drift\": %.6g",
           m->name, (long long)m->staleness, m->slow ? SLOW : 1, x->setup.servers, x->workers,
           sysconf(_SC_NPROCESSORS_ONLN), rule_info_of(x->setup.rules[0].kind)->name, x->clocks,
           rate, m->slow ? predicted_rate(x, m) : 0, (long long)lookups, (long long)pushed,
           (long long)applied, lookups ? (double)refused / (double)lookups : 0, (long long)sent,
           sqrt(apart / gone));
    print_histogram("versions", versions);
    print_histogram("ahead", clocks);
    printf(", \"loss\": [");
    for (int c = 0; c < x->clocks; c++) printf("%s%.6g", c ? ", " : "", loss[c] / x->workers);
    printf("]}\n");
    fflush(stdout);
}

/* Rank 0 prints the results of all, and the sum of the workers' losses. */
static int gather(struct study *x, const struct mode *m, struct result *own, struct error *err) {
    struct transport *t = x->transport;
    const size_t clocks = (size_t)x->clocks, ranks = (size_t)t->ranks;
    struct result *all = must_have(calloc(ranks, sizeof *all));
    double *loss = must_have(calloc(ranks * clocks, sizeof *loss)), clock = 0;
    for (int c = 0; c < CHANNELS; c++) own->sent += t->bytes[c].sent;
    t->channel = CHANNEL_CONTROL;
    const int status = transport_all_gather(t, own, sizeof *own, all, err) ||
                       transport_all_gather(t, x->loss, clocks * sizeof *loss, loss, err);
    for (size_t r = 1; status == 0 && r < ranks; r++) /* servers have none */
        for (size_t c = 0; c < clocks; c++) loss[c] += loss[r * clocks + c];
    for (size_t r = (size_t)x->setup.servers; status == 0 && r < ranks; r++)
        clock += 1 / all[r].rate / x->workers;
    /* A clock of the run without a bound and without a slow worker is the measure of the others. */
    if (m->staleness == STALENESS_ANY && !m->slow) x->clock = clock;
    if (status == 0 && m->name && t->rank == 0) print_run(x, m, all, loss);
    free(all), free(loss);
    return status ? -1 : 0;
}

static int run(struct study *x, const struct mode *m, struct error *err) {
    struct result own;
    memset(&own, 0, sizeof own);
    memset(x->transport->bytes, 0, sizeof x->transport->bytes);
    memset(x->loss, 0, (size_t)x->clocks * sizeof *x->loss);
    x->setup.staleness = m->staleness;
    x->setup.admission = m->admission;
    if (transport_barrier(x->transport, err)) return -1;
    if (x->transport->rank < x->setup.servers ? serve(x, &own, err) : labour(x, m, &own, err))
        return -1;
    return gather(x, m, &own, err);
}

/* Fails on all ranks alike. */
static int prepare(struct study *x, int argc, char **argv, struct error *err) {
    const int servers = argc == 4 ? atoi(argv[1]) : 0;
    x->workers = x->transport->ranks - servers;
    x->clocks = argc == 4 ? atoi(argv[2]) : 0;
    if (servers < 1 || x->workers < 1 || x->clocks < 1 || x->clocks > CLOCKS_MOST)
        return fail(err, "usage: server SERVERS CLOCKS RULE, on more ranks than servers");
    char text[sizeof spec_text + 64];
    struct spec_list list;
    const struct spec_overrides own = {0};
    snprintf(text, sizeof text, spec_text, argv[3]);
    if (spec_parse("server", text, strlen(text), &own, &list, err)) return -1;
    list.specs[0].seed += (uint64_t)x->transport->rank; /* each worker has batches of its own */
    if (workload_generate(&list.specs[0], RING, GRAD_REAL, &x->load, err)) return -1;
    spec_list_free(&list);
    struct rule *rules = must_have(calloc((size_t)x->load.num_tables, sizeof *rules));
    for (int32_t t = 0; t < x->load.num_tables; t++)
        rules[t] = rule_default(x->load.tables[t].rule), rules[t].param[0] = RATE;
    x->setup = (struct server_setup){.servers = servers,
                                     .shapes = x->load.tables,
                                     .rules = rules,
                                     .num_tables = x->load.num_tables,
                                     .seed = 1,
                                     .step = registry_find(OP_STEP, "cpu_fused", err),
                                     .forward = registry_find(OP_FORWARD, "cpu_lookup", err),
                                     .gradient = registry_find(OP_GRADIENT, "cpu_merged", err),
                                     .threads = 1};
    x->loss = must_have(calloc((size_t)x->clocks, sizeof *x->loss));
    return 0;
}

static int run_all(struct study *x, struct error *err) {
    static const struct embfuse_admission count = {.kind = EMBFUSE_ADMIT_COUNT, .threshold = 3},
                                          chance = {.kind = EMBFUSE_ADMIT_CHANCE,
                                                    .probability = 0.2};
    static const struct mode modes[] = {{NULL, 0, NULL, false}, /* warms up */
                                        {"synchronous", 0, NULL, false},
                                        {"no bound", STALENESS_ANY, NULL, false},
                                        {"s = 1", 1, NULL, false},
                                        {"s = 4", 4, NULL, false},
                                        {"synchronous", 0, NULL, true},
                                        {"s = 1", 1, NULL, true},
                                        {"s = 4", 4, NULL, true},
                                        {"no bound", STALENESS_ANY, NULL, true},
                                        {"after 3 touches", 0, &count, false},
                                        {"by chance, 0.2", 0, &chance, false}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (run(x, &modes[i], err)) return -1;
    return 0;
}

static void study_free(struct study *x) {
    free((void *)(uintptr_t)x->start.shapes);
    free((void *)(uintptr_t)x->synced.shapes);
    tables_free(&x->start);
    tables_free(&x->synced);
    free((void *)(uintptr_t)x->setup.rules);
    workload_free(&x->load);
    free(x->loss);
}

int main(int argc, char **argv) {
    struct error err = {""};
    struct study x = {0};
    if (!(x.transport = program_open(&argc, &argv))) return EXIT_USAGE;
    int status = EXIT_FINE;
    if (registry_ready(&err) || prepare(&x, argc, argv, &err)) {
        if (x.transport->rank == 0) fprintf(stderr, "ranks: %s\n", err.text);
        status = EXIT_USAGE;
    } else if (run_all(&x, &err))
        transport_give_up(x.transport, &err);
    study_free(&x);
    program_close(x.transport);
    return status;
}
