/* SPDX-License-Identifier: MIT
 *
 * What a call of the library costs over a call of its kernel: embfuse_step() on a batch that is trusted, and
 * on one that is checked, beside the kernel with a batch that is laid out already. All three prepare the
 * rules' constants, as every step must. And what a monitor adds to a step. Calls take turns; the tables show
 * medians.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/tables.h"
#include "harness/workload/workload.h"
#include "extras/library/embfuse.h"
#include "kernels/rules.h"

enum { TABLES_MOST = 26, WAYS = 3 };

/* Batches from tiny, where a call's fixed costs are all there is, to large. */
static const struct {
    int32_t tables;
    int64_t bags;
} cases[] = {{1, 1}, {1, 256}, {26, 1}, {26, 64}, {26, 2048}};
enum { CASES = sizeof cases / sizeof *cases };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

struct direct {
    const struct kernel *kernel;
    const struct batch *in;
    const struct table *tables;
    struct rule rules[TABLES_MOST];
    struct rule_step steps[TABLES_MOST];
    struct launch how;
};

static void direct_step(struct direct *d, int64_t t) {
    for (int32_t i = 0; i < d->in->num_tables; i++) d->steps[i] = rule_step(d->rules[i], t);
    d->kernel->run(d->in, d->steps, d->tables, &d->how);
}

static void must(int status, const char *text) {
    if (status == 0) return;
    fprintf(stderr, "overhead: %s\n", text);
    exit(1);
}

static struct embfuse_model *open_model(const struct workload *w, const struct table_set *set,
                                        int threads) {
    struct embfuse_table tables[TABLES_MOST];
    struct embfuse_feature features[TABLES_MOST];
    struct embfuse_error why;
    struct embfuse_model *m;
    const struct embfuse_options options = {
        .size = sizeof options, .kernel = "cpu_fused", .threads = threads};
    for (int32_t t = 0; t < w->num_tables; t++) {
        tables[t] = (struct embfuse_table){.rows = w->tables[t].rows,
                                           .dim = w->tables[t].dim,
                                           .rule = rule_info(w->tables[t].rule).name};
        features[t] = (struct embfuse_feature){.table = t};
    }
    must(embfuse_model_create(&m, tables, w->num_tables, features, w->num_features, &options, &why),
         why.text);
    for (int32_t t = 0; t < w->num_tables; t++)
        for (int32_t i = 0, a = 0; a < TABLE_ARRAYS; a++)
            if (table_array_width(&w->tables[t], a))
                must(embfuse_bind(m, t, i++, set->tables[t].array[a].data, 0, &why), why.text);
    return m;
}

/* A workload with its tables. */
struct setup {
    struct spec_list list;
    struct workload w;
    struct table_set set;
};

static void setup_open(struct setup *s, const char *text) {
    struct error err;
    must(spec_parse("overhead", text, strlen(text), NULL, &s->list, &err), err.text);
    must(workload_generate(&s->list.specs[0], 1, GRAD_REAL, &s->w, &err), err.text);
    must(tables_create(&s->set, s->w.tables, s->w.num_tables, 1, &err), err.text);
}

static void setup_close(struct setup *s) {
    tables_free(&s->set);
    workload_free(&s->w);
    spec_list_free(&s->list);
}

static struct embfuse_batch batch_of(const struct batch *in) {
    return (struct embfuse_batch){.size = sizeof(struct embfuse_batch),
                                  .bags = in->features[0].bags,
                                  .lookups = in->lookups,
                                  .ids = in->ids,
                                  .offsets = in->offsets,
                                  .id_type =
                                      in->id_type == ID_INT32 ? EMBFUSE_INT32 : EMBFUSE_INT64};
}

/* A call beside its kernel. */
static void measure_call(int32_t tables, int64_t bags, const char *rule, int threads) {
    enum { SAMPLES = 2001 };
    static double ns[WAYS][SAMPLES];
    char text[400];
    struct setup s;
    struct error err;
    struct embfuse_error why;
    snprintf(text, sizeof text,
             "workload overhead\n tables %d\n rows 1000\n dim 64\n batch %lld\n length fixed 4\n "
             "ids zipf\n alpha 1\n rule %s\n",
             tables, (long long)bags, rule);
    setup_open(&s, text);
    const struct batch *in = &s.w.batches[0];
    struct direct d = {.kernel = registry_find(OP_STEP, "cpu_fused", &err),
                       .in = in,
                       .tables = s.set.tables,
                       .how = {.threads = threads}};
    for (int32_t t = 0; t < tables; t++) d.rules[t] = rule_default(s.w.tables[t].rule);
    const size_t bytes = d.kernel->scratch_bytes(in, threads);
    d.how.scratch =
        must_have(aligned_alloc(KERNEL_ALIGN, (bytes / KERNEL_ALIGN + 1) * KERNEL_ALIGN));
    struct embfuse_model *m = open_model(&s.w, &s.set, threads);
    struct embfuse_batch batch = batch_of(in);
    for (int i = 0; i < SAMPLES; i++)
        for (int way = 0; way < WAYS; way++) {
            batch.trusted = way == 1;
            const double begin = now_ns();
            if (way == 0)
                direct_step(&d, i + 1);
            else
                must(embfuse_step(m, &batch, in->grad, &why), why.text);
            ns[way][i] = now_ns() - begin;
        }
    const double direct = median(ns[0], SAMPLES);
    printf("| %s | %d | %lld | %d | %.2f | %+.2f | %+.2f |\n", rule, tables, (long long)in->lookups,
           threads, 1e-3 * direct, 1e-3 * (median(ns[1], SAMPLES) - direct),
           1e-3 * (median(ns[2], SAMPLES) - direct));
    fflush(stdout);
    embfuse_model_free(m);
    free(d.how.scratch);
    setup_close(&s);
}

/* A step with a monitor beside one without, on the same tables: medians of ratios to the step before. */
static void measure_monitor(int64_t rows, double alpha, const char *rule, int threads) {
    enum { SAMPLES = 41 };
    static const int64_t every[WAYS] = {0, 64, 1};
    static double ns[SAMPLES], ratio[WAYS][SAMPLES];
    char text[400];
    struct setup s;
    struct embfuse_model *m[WAYS];
    struct embfuse_error why;
    snprintf(text, sizeof text,
             "workload overhead\n tables 1\n rows %lld\n dim 64\n batch 26214\n length fixed 20\n "
             "ids zipf\n alpha %g\n rule %s\n",
             (long long)rows, alpha, rule);
    setup_open(&s, text);
    const struct embfuse_batch batch = batch_of(&s.w.batches[0]);
    for (int way = 0; way < WAYS; way++) {
        m[way] = open_model(&s.w, &s.set, threads);
        must(embfuse_monitor_start(m[way], 0, every[way], &why), why.text);
    }
    for (int i = -2; i < SAMPLES; i++)
        for (int way = 0; way < WAYS; way++) {
            const double begin = now_ns();
            must(embfuse_step(m[way], &batch, s.w.batches[0].grad, &why), why.text);
            const double took = now_ns() - begin;
            if (i < 0) continue;
            if (way == 0) ns[i] = took;
            ratio[way][i] = took / ns[i];
        }
    printf("| %s | %lld | %g | %d | %.2f | %+.1f %% | %+.1f %% |\n", rule, (long long)rows, alpha,
           threads, 1e-6 * median(ns, SAMPLES), 100 * (median(ratio[1], SAMPLES) - 1),
           100 * (median(ratio[2], SAMPLES) - 1));
    fflush(stdout);
    for (int way = 0; way < WAYS; way++) embfuse_model_free(m[way]);
    setup_close(&s);
}

int main(void) {
    static const struct {
        int64_t rows;
        double alpha;
    } tables[] = {{4000000, 0}, {4000000, 1.05}, {100000, 1.05}};
    static const char *const rules[] = {"rowwise_adagrad", "adam"};
    printf("| rule | tables | lookups | threads | kernel alone, us | library, trusted | library, "
           "checked |\n"
           "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int threads = 1; threads <= 2; threads++)
        for (int c = 0; c < CASES; c++)
            for (int r = 0; r < 2; r++)
                measure_call(cases[c].tables, cases[c].bags, rules[r], threads);
    printf(
        "\n| rule | rows | alpha | threads | step, ms | monitor of one row in 64 | of every row |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int threads = 1; threads <= 2; threads++)
        for (size_t c = 0; c < sizeof tables / sizeof *tables; c++)
            for (int r = 0; r < 2; r++)
                measure_monitor(tables[c].rows, tables[c].alpha, rules[r], threads);
    return 0;
}
