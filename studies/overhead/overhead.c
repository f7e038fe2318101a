/* SPDX-License-Identifier: MIT
 *
 * What a call of the library costs over a call of its kernel: embfuse_step() on a batch that is trusted, and
 * on one that is checked, beside the kernel with a batch that is laid out already. All three prepare the
 * rules' constants, as every step must. Calls take turns; the table shows medians.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/tables.h"
#include "harness/workload/workload.h"
#include "include/embfuse.h"
#include "kernels/rules.h"

enum { TABLES_MOST = 26, SAMPLES = 2001, WAYS = 3 };

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
        features[t] = (struct embfuse_feature){.table = t, .padding_id = -1};
    }
    must(embfuse_model_create(&m, tables, w->num_tables, features, w->num_features, &options, &why),
         why.text);
    for (int32_t t = 0; t < w->num_tables; t++)
        for (int32_t i = 0, a = 0; a < TABLE_ARRAYS; a++)
            if (table_array_width(&w->tables[t], a))
                must(embfuse_bind(m, t, i++, set->tables[t].array[a].data, 0, &why), why.text);
    return m;
}

static void measure(int32_t tables, int64_t bags, const char *rule, int threads) {
    static double ns[WAYS][SAMPLES];
    char text[400];
    struct spec_list list;
    struct workload w;
    struct table_set set;
    struct error err;
    struct embfuse_error why;
    snprintf(text, sizeof text,
             "workload overhead\n tables %d\n rows 1000\n dim 64\n batch %lld\n length fixed 4\n "
             "ids zipf\n alpha 1\n rule %s\n",
             tables, (long long)bags, rule);
    must(spec_parse("overhead", text, strlen(text), NULL, &list, &err), err.text);
    must(workload_generate(&list.specs[0], 1, GRAD_REAL, &w, &err), err.text);
    must(tables_create(&set, w.tables, w.num_tables, 1, &err), err.text);
    const struct batch *in = &w.batches[0];
    struct direct d = {.kernel = registry_find(OP_STEP, "cpu_fused", &err),
                       .in = in,
                       .tables = set.tables,
                       .how = {.threads = threads}};
    for (int32_t t = 0; t < tables; t++) d.rules[t] = rule_default(w.tables[t].rule);
    d.how.scratch = must_have(aligned_alloc(
        KERNEL_ALIGN, (d.kernel->scratch_bytes(in, threads) / KERNEL_ALIGN + 1) * KERNEL_ALIGN));
    struct embfuse_model *m = open_model(&w, &set, threads);
    struct embfuse_batch batch = {.size = sizeof batch,
                                  .bags = in->bags,
                                  .lookups = in->lookups,
                                  .ids = in->ids,
                                  .offsets = in->offsets,
                                  .id_type = (int32_t)in->id_type};
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
    const double direct = median(ns[0], SAMPLES), trusted = median(ns[1], SAMPLES),
                 checked = median(ns[2], SAMPLES);
    printf("| %s | %d | %lld | %d | %.2f | %+.2f | %+.2f |\n", rule, tables, (long long)in->lookups,
           threads, 1e-3 * direct, 1e-3 * (trusted - direct), 1e-3 * (checked - direct));
    fflush(stdout);
    embfuse_model_free(m);
    free(d.how.scratch);
    tables_free(&set);
    workload_free(&w);
    spec_list_free(&list);
}

int main(void) {
    printf("| rule | tables | lookups | threads | kernel alone, us | library, trusted | library, "
           "checked |\n"
           "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int threads = 1; threads <= 2; threads++)
        for (int c = 0; c < CASES; c++) {
            measure(cases[c].tables, cases[c].bags, "rowwise_adagrad", threads);
            measure(cases[c].tables, cases[c].bags, "adam", threads);
        }
    return 0;
}
