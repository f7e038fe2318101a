/* SPDX-License-Identifier: MIT
 *
 * One table on ranks that are threads: a forward and a step of ZeRO-1, of ZeRO-3 and of rows sharded over the ranks,
 * for growing tables. Prints a line of JSON for each: bytes that the busiest rank sends, bytes that a rank holds
 * at the peak (work space apart), seconds of the slowest rank. Usage: zero RANKS...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/ceiling.h"
#include "harness/measure/runner.h"
#include "harness/registry.h"
#include "harness/workload/spec.h"
#include "harness/workload/workload.h"
#include "extras/ranks/deal.h"
#include "extras/ranks/place_ranks.h"
#include "extras/ranks/times.h"
#include "extras/ranks/zero.h"

enum { TIMES = 5, DIM = 64, BAGS = 1024, POOLING = 10 };

struct run {
    struct workload load;
    struct rule rule;
    bool sparse;
    enum zero_stage stage;
    double sent, peak, seconds;
};

static int dense(struct transport *t, struct run *w, struct error *err) {
    const struct batch *in = &w->load.batches[0];
    const struct deal deal = deal_of(t, in);
    struct table_set start;
    struct batch own;
    struct zero *z;
    if (tables_create(&start, in->tables, 1, 42, err)) return -1;
    int status = deal_batch(&deal, t->rank ? NULL : in, &own, err) ||
                 zero_open(&z, t, w->stage, in->tables, start.tables, &w->rule, err);
    tables_free(&start);
    if (status) return -1;
    float *output = must_have(calloc((size_t)own.grad_elements + 1, sizeof *output));
    double most[3] = {0, 0, 1e30};
    for (int k = 0; status == 0 && k < TIMES; k++) {
        memset(t->bytes, 0, sizeof t->bytes);
        status = transport_barrier(t, err);
        const double began = clock_seconds();
        if (status == 0) status = zero_forward(z, &own, output, err);
        if (status == 0) status = zero_step(z, &own, k + 1, err);
        double took = clock_seconds() - began;
        most[0] = (double)(t->bytes[CHANNEL_WEIGHT].sent + t->bytes[CHANNEL_GRADIENT].sent);
        if (status == 0) status = transport_most(t, &took, 1, err);
        if (took < most[2]) most[2] = took;
    }
    if (status == 0) most[1] = (double)zero_report(z).peak;
    if (status == 0) status = transport_most(t, most, 3, err);
    if (t->rank == 0) w->sent = most[0], w->peak = most[1], w->seconds = most[2];
    free(output);
    deal_free(&own);
    zero_close(z);
    return status;
}

/* An iteration: lengths and ids to the owners, outputs back, gradients to the owners. */
static int sparse(struct transport *t, struct run *w, struct error *err) {
    const struct ranks_options options = {"row", false};
    const struct place_setup setup = {.shapes = w->load.tables,
                                      .num_tables = 1,
                                      .batches = w->load.batches,
                                      .ring = 1,
                                      .threads = 1,
                                      .seed = 42,
                                      .timed = true};
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, err);
    if (!p) return -1;
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", err);
    const struct rule_step step = rule_step(w->rule, 1);
    struct place_scratch scratch = {0}, output = {0};
    int status = runner_scratch_open(p, k, &scratch, err);
    if (status == 0) status = runner_output_open(p, &setup, OP_FORWARD, &output, err);
    const struct place_job job = {.kernel = k,
                                  .forward = registry_find(OP_FORWARD, "cpu_lookup", err),
                                  .steps = &step,
                                  .scratch = &scratch,
                                  .output = &output};
    w->seconds = 1e30;
    for (int i = 0; status == 0 && i < TIMES; i++) {
        struct step_times times;
        status = p->ops->time(p, &job, false, &times, err);
        if (status) break;
        w->sent = 0;
        double seconds = times.seconds;
        for (int e = 0; e < EXCHANGES; e++)
            w->sent += (double)place_ranks_times(p)->exchange[e].sent;
        if (seconds < w->seconds) w->seconds = seconds;
    }
    const struct table_shape *x = &w->load.tables[0];
    w->peak = (double)((x->rows + t->ranks - 1) / t->ranks * (tables_bytes(x, 1) / x->rows));
    p->ops->scratch_close(p, &scratch);
    p->ops->scratch_close(p, &output);
    p->ops->close(p);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct run *w = ctx;
    struct error err = {""};
    int status;
    if (!w->sparse)
        status = dense(t, w, &err);
    else if (t->rank)
        return ranks_follow(t, &err);
    else
        status = sparse(t, w, &err), ranks_dismiss(t, &(struct error){""});
    if (status) fprintf(stderr, "zero: rank %d: %s\n", t->rank, err.text);
    return status;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        enum zero_stage stage;
        bool sparse;
    } ways[] = {
        {"ZeRO-1", ZERO_1, false}, {"ZeRO-3", ZERO_3, false}, {"row-wise sparse", ZERO_3, true}};
    static const int64_t rows[] = {1000, 10000, 100000, 400000};
    struct error err;
    if (registry_ready(&err)) return fprintf(stderr, "zero: %s\n", err.text), EXIT_USAGE;
    for (int a = 1; a < argc; a++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            char text[300];
            struct spec_list list;
            struct run w = {.rule = rule_default(RULE_adagrad)};
            const int ranks = atoi(argv[a]);
            if (ranks < 1 || ranks > 64)
                return fprintf(stderr, "zero: %s is no number of ranks\n", argv[a]), EXIT_USAGE;
            snprintf(text, sizeof text,
                     "workload zero\nrows %lld\ndim %d\nbatch %d\nlength fixed %d\nids zipf\nalpha "
                     "1.05\nrule adagrad\n",
                     (long long)rows[i], DIM, BAGS, POOLING);
            if (spec_parse("zero", text, strlen(text), NULL, &list, &err) ||
                workload_generate(&list.specs[0], 1, GRAD_REAL, &w.load, &err))
                return fprintf(stderr, "zero: %s\n", err.text), EXIT_USAGE;
            for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
                w.sparse = ways[way].sparse;
                w.stage = ways[way].stage;
                if (transport_threads(ranks, 1, 0, live, &w)) return EXIT_USAGE;
                printf("{\"way\": \"%s\", \"ranks\": %d, \"rows\": %lld, \"sent\": %.0f, "
                       "\"peak\": %.0f, \"seconds\": %.6g}\n",
                       ways[way].name, ranks, (long long)rows[i], w.sent, w.peak, w.seconds);
                fflush(stdout);
            }
            workload_free(&w.load);
            spec_list_free(&list);
        }
    return EXIT_FINE;
}
