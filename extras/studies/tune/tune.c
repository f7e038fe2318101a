/* SPDX-License-Identifier: MIT
 *
 * Finds the prefetches of the host kernels (kernels/host/prefetch.h) that are fastest on this machine: of
 * cpu_fused on uniform and on skewed ids, in a table beyond most caches. One part of the choice after the
 * other is tried in all its values, which take turns; then the result takes turns with the default.
 *
 * Usage: tune THREADS SECONDS ROWS. It takes about so many seconds, with those to fill its table, and prints lines
 * of JSON for extras/studies/tune.py: what the machine is, then every sample, then the choice.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/ceiling.h"
#include "harness/measure/environment.h"
#include "harness/memory.h"
#include "harness/prefetch_choice.h"
#include "harness/registry.h"
#include "harness/workload/tables.h"
#include "harness/workload/workload.h"
#include "kernels/rules.h"

/* With 4 million rows, half of the standard set's lookups, so that there is time for more samples. Between two
 * visits of a batch all others pass, with 1 GiB of rows. */
static const char spec[] =
    "workload zipf\n rows %ld\n dim 64\n batch %ld\n length uniform 1 39\n ids zipf\n"
    " alpha 0 1.05\n rule rowwise_adagrad\n";
enum { ROWS_PER_BAG = 156, ROWS_LEAST = 10000, ROWS_MOST = 1 << 30 };
enum { WORKLOADS = 2, RING = 7, CANDIDATES_MOST = 8, ROUNDS_LEAST = 3, ROUNDS_MOST = 400 };

/* A change must gain more than the noise of a machine. */
static const double worth = 0.98;

static void must(int status, const struct error *err) {
    if (status == 0) return;
    fprintf(stderr, "tune: %s\n", err->text);
    exit(EXIT_USAGE);
}

struct bench {
    const struct kernel *kernel;
    struct spec_list list;
    struct workload workload[WORKLOADS];
    struct table_set tables;
    struct rule_step step;
    struct buffer scratch;
    int threads, next; /* batch of the ring */
};

static void bench_open(struct bench *b, int threads, long rows) {
    struct error err;
    char text[sizeof spec + 40];
    memset(b, 0, sizeof *b);
    b->threads = threads;
    b->kernel = registry_find(OP_STEP, "cpu_fused", &err);
    snprintf(text, sizeof text, spec, rows, rows / ROWS_PER_BAG);
    must(spec_parse("tune", text, strlen(text), NULL, &b->list, &err), &err);
    size_t bytes = 0;
    for (int w = 0; w < WORKLOADS; w++) {
        must(workload_generate(&b->list.specs[w], RING, GRAD_REAL, &b->workload[w], &err), &err);
        for (int k = 0; k < RING; k++) {
            const size_t own = b->kernel->scratch_bytes(&b->workload[w].batches[k], threads);
            bytes = own > bytes ? own : bytes;
        }
    }
    must(tables_create(&b->tables, b->workload[0].tables, 1, 1, &err), &err);
    must(buffer_alloc(&b->scratch, bytes, "the scratch", &err), &err);
    memset(b->scratch.data, 0, bytes);
    b->step = rule_step(rule_default(b->workload[0].tables[0].rule), 10);
}

static void bench_close(struct bench *b) {
    buffer_free(&b->scratch);
    tables_free(&b->tables);
    for (int w = 0; w < WORKLOADS; w++) workload_free(&b->workload[w]);
    spec_list_free(&b->list);
}

/* ns of a lookup in a step. */
static double bench_step(struct bench *b, int w, const struct prefetch_choice *choice) {
    const struct batch *in = &b->workload[w].batches[b->next++ % RING];
    const struct launch how = {.threads = b->threads, .scratch = b->scratch.data};
    prefetch_choice = *choice;
    const double begin = clock_seconds();
    const int status = b->kernel->run(in, &b->step, b->tables.tables, &how);
    const double seconds = clock_seconds() - begin;
    must(status, &(struct error){.text = "a step failed"});
    return 1e9 * seconds / (double)in->lookups;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Choices that take turns. */
struct turns {
    int count;
    struct prefetch_choice choice[CANDIDATES_MOST];
    double time[CANDIDATES_MOST]; /* the geometric mean of the workloads' medians */
};

static void take_turns(struct bench *b, const char *part, struct turns *t, double seconds) {
    static double ns[CANDIDATES_MOST][WORKLOADS][ROUNDS_MOST];
    const double end = clock_seconds() + seconds;
    int rounds = 0;
    fprintf(stderr, "tune: %s\n", part);
    for (; rounds < ROUNDS_MOST && (rounds < ROUNDS_LEAST || clock_seconds() < end); rounds++)
        for (int turn = 0; turn < t->count; turn++) {
            const int k = rounds % 2 ? t->count - 1 - turn : turn;
            char text[PREFETCH_TEXT];
            for (int w = 0; w < WORKLOADS; w++) {
                ns[k][w][rounds] = bench_step(b, w, &t->choice[k]);
                printf("{\"part\": \"%s\", \"workload\": \"%s\", \"choice\": \"%s\", "
                       "\"ns_per_lookup\": %.9g}\n",
                       part, b->list.specs[w].name, prefetch_text(&t->choice[k], text),
                       ns[k][w][rounds]);
            }
        }
    for (int k = 0; k < t->count; k++) {
        double log_sum = 0;
        for (int w = 0; w < WORKLOADS; w++) log_sum += log(median(ns[k][w], rounds));
        t->time[k] = exp(log_sum / WORKLOADS);
    }
}

static struct prefetch_choice fastest(const struct turns *t) {
    int best = 0;
    for (int k = 1; k < t->count; k++) best = t->time[k] < t->time[best] ? k : best;
    return t->choice[best];
}

/* All values of `ahead`, a member of *choice, from `least` bytes on. */
static struct turns ways_ahead(struct prefetch_choice *choice, struct prefetch_ahead *ahead,
                               int32_t least) {
    struct turns t = {0};
    for (; t.count < CANDIDATES_MOST; t.count++) {
        *ahead = (struct prefetch_ahead){t.count % 2 ? INTO_L2 : INTO_L1, least << t.count / 2};
        t.choice[t.count] = *choice;
    }
    return t;
}

static void context(void *ctx, const char *key, const char *value) {
    (void)ctx;
    printf("{\"%s\": \"", key);
    for (; *value; value++) putchar(*value == '"' || *value == '\\' ? '\'' : *value);
    printf("\"}\n");
}

static struct prefetch_choice tune(struct bench *b, const struct prefetch_choice usual,
                                   double seconds) {
    struct prefetch_choice now = usual;
    struct turns t = ways_ahead(&now, &now.rows, 2048);
    take_turns(b, "rows ahead", &t, 0.3 * seconds);
    now = fastest(&t);
    t = ways_ahead(&now, &now.grads, 1024);
    take_turns(b, "gradients ahead", &t, 0.3 * seconds);
    now = fastest(&t);
    t.count = 0;
    for (int32_t bytes = 0; bytes <= 1 << 20; bytes = bytes ? 2 * bytes : 1 << 16) {
        now.sort_bytes = bytes;
        t.choice[t.count++] = now;
    }
    take_turns(b, "rows during the sort", &t, 0.2 * seconds);
    now = fastest(&t);
    t = (struct turns){.count = 2, .choice = {usual, now}};
    take_turns(b, "the choice beside the default", &t, 0.2 * seconds);
    return t.time[1] < worth * t.time[0] ? now : usual;
}

int main(int argc, char **argv) {
    struct error err;
    char text[PREFETCH_TEXT], rest;
    int threads;
    double seconds;
    long rows;
    if (argc != 4 || sscanf(argv[1], "%d%c", &threads, &rest) != 1 || threads < 1 ||
        threads > 4096 || sscanf(argv[2], "%lf%c", &seconds, &rest) != 1 || !(seconds >= 0) ||
        seconds > 3600 || sscanf(argv[3], "%ld%c", &rows, &rest) != 1 || rows < ROWS_LEAST ||
        rows > ROWS_MOST) {
        fprintf(stderr, "usage: tune THREADS SECONDS ROWS, with %d rows or more\n", ROWS_LEAST);
        return EXIT_USAGE;
    }
    const double begin = clock_seconds();
    must(registry_ready(&err), &err);
    fprintf(stderr, "tune: filling a table\n");
    struct bench b;
    bench_open(&b, threads, rows);
    environment_describe(threads, NULL, context, NULL);
    const struct prefetch_choice usual = prefetch_default();
    const struct prefetch_choice chosen = tune(&b, usual, begin + seconds - clock_seconds());
    printf("{\"emb_tune_default\": \"%s\"}\n", prefetch_text(&usual, text));
    printf("{\"emb_tune_chosen\": \"%s\"}\n", prefetch_text(&chosen, text));
    bench_close(&b);
    return 0;
}
