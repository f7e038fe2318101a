/* SPDX-License-Identifier: MIT
 *
 * Steps over a stream of batches with a share of the rows of a table in slots, beside the same steps with all rows in
 * memory.
 *
 *   tiers SPEC TRACE BATCHES DIRECTORY CASE ...
 *
 * SPEC is the text of a workload. TRACE: a file with its ids and lengths, or - . The first half of BATCHES warms the
 * cache up, the second is measured. DIRECTORY: of the tables. CASE is STORE,BUDGET,POLICY,AHEAD: steps of cpu_fused
 * over files, RocksDB or memory, with AHEAD batches announced while one runs.
 *
 * Prints a line of JSON for each; with "missing" alone if the slots are fewer than the rows of a batch. Gradients are
 * exact, so all rows must have the bits of tables in memory. Times are of the whole measured half, with its
 * beginning and end, which do not overlap. Tables in memory take the same steps before and after each case, a
 * median each, unless the store is memory: that case counts hits.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "extras/tiers/place_tier.h"
#include "harness/measure/runner.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "kernels/rng.h"
#include "kernels/rules.h"
#include "kernels/shape.h"

enum { DEPTH = 64, PROBED = 16384, AHEAD_MOST = 4 };

/* --- batches, one after the other; the first [warm] of them are not measured */

struct stream {
    struct workload workload;
    struct row_index *index; /* [batches] */
    struct rule_step *rules; /* [batches][num_tables] */
    struct place_setup setup;
    int batches, warm;
};

static int open_stream(struct stream *s, const char *text, const char *trace, struct error *err) {
    struct spec_list list;
    const struct spec_overrides none = {0};
    struct workload *w = &s->workload;
    if (spec_parse("SPEC", text, strlen(text), &none, &list, err)) return -1;
    const struct spec *spec = &list.specs[0];
    const int status = strcmp(trace, "-")
                           ? workload_from_trace(trace, spec, s->batches, GRAD_EXACT, w, err)
                           : workload_generate(spec, s->batches, GRAD_EXACT, w, err);
    spec_list_free(&list);
    if (status) return -1;
    if (w->ring < 2) return fail(err, "%s: fewer than 2 batches", trace);
    s->batches = w->ring; /* a short trace has fewer */
    s->warm = s->batches / 2;
    s->index = must_have(calloc((size_t)s->batches, sizeof *s->index));
    s->rules = must_have(calloc((size_t)(s->batches * w->num_tables), sizeof *s->rules));
    for (int b = 0; b < s->batches; b++) {
        s->index[b] = row_index_build(&w->batches[b]);
        for (int32_t t = 0; t < w->num_tables; t++)
            s->rules[b * w->num_tables + t] = rule_step(workload_rule(w, t), b + 1);
    }
    s->setup = (struct place_setup){.shapes = w->tables,
                                    .num_tables = w->num_tables,
                                    .batches = w->batches,
                                    .index = s->index,
                                    .ring = s->batches,
                                    .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                                    .seed = w->seed};
    return 0;
}

static void close_stream(struct stream *s) {
    for (int b = 0; s->index && b < s->batches; b++) row_index_free(&s->index[b]);
    free(s->index);
    free(s->rules);
    workload_free(&s->workload);
}

/* Steps of batches from .. to-1; [ahead] of them are announced while one runs. */
static int steps(const struct stream *s, struct place *p, struct place_scratch *scratch, int from,
                 int to, int ahead, double *seconds, struct error *err) {
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", err);
    const double begin = clock_seconds();
    int announced = from;
    for (int b = from; b < to; b++) {
        for (; ahead && announced < to && announced <= b + ahead; announced++)
            if (tier_announce(p, announced, err)) return -1;
        const struct place_job job = {.kernel = k,
                                      .batch = b,
                                      .steps = s->rules + (int64_t)b * s->workload.num_tables,
                                      .scratch = scratch};
        if (p->ops->run(p, &job, err)) return -1;
    }
    *seconds = clock_seconds() - begin;
    return 0;
}

/* --- the same steps with all rows in memory */

struct memory {
    struct place *place;
    struct place_scratch scratch;
    struct table_set rows; /* after each batch has run once */
};

static int open_memory(const struct stream *s, struct memory *m, struct error *err) {
    double seconds;
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", err);
    m->place = place_host_open(&s->setup, err);
    if (!m->place || runner_scratch_open(m->place, k, &m->scratch, err) ||
        steps(s, m->place, &m->scratch, 0, s->batches, 0, &seconds, err) ||
        tables_create(&m->rows, s->workload.tables, s->workload.num_tables, 0, err))
        return -1;
    return place_get_tables(m->place, &m->rows, err);
}

static void close_memory(struct memory *m) {
    if (m->scratch.data) m->place->ops->scratch_close(m->place, &m->scratch);
    if (m->place) m->place->ops->close(m->place);
    tables_free(&m->rows);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The measured half: the median of several, since one takes milliseconds. The other half runs before each, as with
 * slots, so that gradients are in no cache. */
static int memory_time(const struct stream *s, struct memory *m, double *seconds,
                       struct error *err) {
    enum { TIMES = 15 };
    double all[TIMES], other;
    for (int i = 0; i < TIMES; i++)
        if (steps(s, m->place, &m->scratch, 0, s->warm, 0, &other, err) ||
            steps(s, m->place, &m->scratch, s->warm, s->batches, 0, &all[i], err))
            return -1;
    qsort(all, TIMES, sizeof *all, by_size);
    *seconds = all[TIMES / 2];
    return 0;
}

static int same_rows(const struct stream *s, const struct memory *m, struct place *p,
                     struct error *err) {
    struct table_set got;
    const struct table_shape *shapes = s->workload.tables;
    if (tables_create(&got, shapes, s->workload.num_tables, 1, err)) return -1;
    int status = place_get_tables(p, &got, err);
    for (int32_t t = 0; status == 0 && t < s->workload.num_tables; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const size_t bytes = table_memory_bytes(&shapes[t], a);
            if (bytes &&
                memcmp(m->rows.tables[t].array[a].data, got.tables[t].array[a].data, bytes))
                status = fail(err, "table %d has other rows than in memory", t);
        }
    tables_free(&got);
    return status;
}

/* --- a case */

static const struct store_kind *const stores[] = {&file_store, &rocksdb_store, &memory_store};
enum { STORES = sizeof stores / sizeof *stores };

struct tier_case {
    const char *word;
    const struct store_kind *store;
    double budget;
    enum policy policy;
    int ahead;
};

struct measured {
    double seconds, memory[2], reads, writes;
    struct tier_counts before, after;
    int64_t disk_read, bytes, record;
};

/* Records per second of the disk, at random places of the first table: no policy can be quicker. Writes put back what
 * was read. */
static int probe(const struct stream *s, struct resident *r, struct measured *out,
                 struct error *err) {
    const int64_t all = s->workload.tables[0].rows, bytes = r->records[0].bytes;
    const int64_t count = all < PROBED ? all : PROBED;
    int64_t *rows = must_have(calloc((size_t)all, sizeof *rows));
    char *records = must_have(aligned_alloc(4096, (size_t)(count * bytes + 4095) / 4096 * 4096));
    for (int64_t i = 0; i < all; i++) { /* Fisher and Yates */
        const int64_t k = (int64_t)(rng_u64(s->workload.seed, (uint64_t)i) % (uint64_t)(i + 1));
        rows[i] = rows[k];
        rows[k] = i;
    }
    const double begin = clock_seconds();
    int status = r->store->kind->fetch(r->store, 0, rows, count, records, err);
    const double middle = clock_seconds();
    if (status == 0) status = r->store->kind->put(r->store, 0, rows, count, records, err);
    out->reads = (double)count / (middle - begin);
    out->writes = (double)count / (clock_seconds() - middle);
    free(rows);
    free(records);
    return status;
}

/* Lookups of the batches that are measured: they change no row, and afterwards all their rows are in slots, if there
 * are as many. */
static int look_up_all(const struct stream *s, struct place *p, struct place_scratch *scratch,
                       struct error *err) {
    struct place_scratch output = {0};
    const struct kernel *k = registry_find(OP_FORWARD, "cpu_lookup_ahead", err);
    int status = k ? runner_output_open(p, &s->setup, OP_FORWARD, &output, err) : -1;
    for (int b = s->warm; status == 0 && b < s->batches; b++) {
        const struct place_job job = {
            .kernel = k, .batch = b, .steps = s->rules, .scratch = scratch, .output = &output};
        status = p->ops->run(p, &job, err);
    }
    p->ops->scratch_close(p, &output);
    return status;
}

static int measure_steps(const struct stream *s, const struct tier_case *c, struct place *p,
                         struct place_scratch *scratch, const struct memory *m,
                         struct measured *out, struct error *err) {
    const bool counts_hits = c->store == &memory_store;
    if (steps(s, p, scratch, 0, s->warm, c->ahead, &out->seconds, err)) return -1;
    if (!counts_hits && c->budget == 1 && look_up_all(s, p, scratch, err)) return -1;
    out->before = tier_resident(p)->counts;
    out->disk_read = read_number("/proc/self/io", "read_bytes:");
    if (steps(s, p, scratch, s->warm, s->batches, c->ahead, &out->seconds, err)) return -1;
    out->disk_read = read_number("/proc/self/io", "read_bytes:") - out->disk_read;
    out->after = tier_resident(p)->counts;
    out->bytes = resident_bytes(tier_resident(p));
    out->record = tier_resident(p)->records[0].bytes;
    return same_rows(s, m, p, err);
}

static int measure(const struct stream *s, const struct tier_case *c, const char *directory,
                   const struct memory *m, struct measured *out, struct error *err) {
    struct place_scratch scratch = {0};
    const struct tier_options o = {.store = c->store,
                                   .directory = directory,
                                   .budget = c->budget,
                                   .policy = c->policy,
                                   .depth = DEPTH,
                                   .direct = true};
    struct place *p = place_tier_open(&o, &s->setup, err);
    if (!p) return -1;
    int status = runner_scratch_open(p, registry_find(OP_STEP, "cpu_fused", err), &scratch, err);
    if (status == 0 && c->store == &file_store) status = probe(s, tier_resident(p), out, err);
    if (status == 0) status = measure_steps(s, c, p, &scratch, m, out, err);
    p->ops->scratch_close(p, &scratch);
    p->ops->close(p);
    return status;
}

static void print_case(const struct stream *s, const struct tier_case *c,
                       const struct measured *x) {
    const struct tier_counts *a = &x->before, *b = &x->after;
    printf("{\"store\": \"%s\", \"policy\": \"%s\", \"budget\": %g, \"ahead\": %d, \"batches\": "
           "%d, \"record\": %lld, ",
           c->store->name, policy_names[c->policy], c->budget, c->ahead, s->batches - s->warm,
           (long long)x->record);
#define COUNT(name)   printf("\"%s\": %lld, ", #name, (long long)(b->name - a->name))
#define SECONDS(name) printf("\"%s\": %.6g, ", #name, b->name - a->name)
    COUNT(lookups);
    COUNT(lookup_misses);
    COUNT(rows);
    COUNT(row_misses);
    COUNT(written_back);
    SECONDS(index);
    SECONDS(fetch);
    SECONDS(write_back);
    SECONDS(wait);
#undef COUNT
#undef SECONDS
    printf("\"seconds\": %.6g, \"memory\": [%.6g, %.6g], \"reads\": %.6g, \"writes\": %.6g, "
           "\"disk_read\": %lld, \"bytes\": %lld}\n",
           x->seconds, x->memory[0], x->memory[1], x->reads, x->writes, (long long)x->disk_read,
           (long long)x->bytes);
}

/* Rows of the largest batch beyond the slots. */
static int64_t missing_slots(const struct stream *s, double budget) {
    int64_t missing = 0;
    for (int b = 0; b < s->batches; b++)
        for (int32_t t = 0; t < s->workload.num_tables; t++)
            missing = max64(missing, row_index_find(&s->index[b], t + 1, 0) -
                                         row_index_find(&s->index[b], t, 0) -
                                         tier_slots(budget, s->workload.tables[t].rows));
    return missing;
}

/* Tables in memory are measured while there are no threads of a store. */
static int show_case(const struct stream *s, const struct tier_case *c, const char *directory,
                     struct memory *m, struct error *err) {
    const bool counts_hits = c->store == &memory_store;
    const int64_t missing = missing_slots(s, c->budget);
    struct measured x = {0};
    char path[PATH_MAX]; /* each case has a folder */
    if (missing) {
        printf(
            "{\"store\": \"%s\", \"policy\": \"%s\", \"budget\": %g, \"ahead\": %d, \"missing\": "
            "%lld}\n",
            c->store->name, policy_names[c->policy], c->budget, c->ahead, (long long)missing);
        return 0;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, c->word) >= sizeof path)
        return fail(err, "%.60s...: too long", directory);
    if ((!m->place && open_memory(s, m, err)) ||
        (!counts_hits && memory_time(s, m, &x.memory[0], err)) || measure(s, c, path, m, &x, err) ||
        (!counts_hits && memory_time(s, m, &x.memory[1], err)))
        return -1;
    print_case(s, c, &x);
    return 0;
}

/* --- the command line */

static int read_case(const char *word, struct tier_case *out, struct error *err) {
    char store[16], policy[16];
    int end = 0;
    *out = (struct tier_case){.word = word, .policy = POLICIES};
    sscanf(word, "%15[a-z],%lf,%15[a-z],%d%n", store, &out->budget, policy, &out->ahead, &end);
    for (int k = 0; end && k < STORES; k++)
        if (!strcmp(store, stores[k]->name)) out->store = stores[k];
    for (int p = 0; end && p < POLICIES; p++)
        if (!strcmp(policy, policy_names[p])) out->policy = (enum policy)p;
    if (end && !word[end] && out->store && out->policy < POLICIES && out->budget > 0 &&
        out->budget <= 1 && out->ahead >= 0 && out->ahead <= AHEAD_MOST)
        return 0;
    return fail(
        err,
        "'%.60s': a case is STORE,BUDGET,POLICY,AHEAD: files rocksdb or memory; above 0 and "
        "up to 1; lru lfu or belady; 0 to %d",
        word, AHEAD_MOST);
}

static int show_all(struct stream *s, char **argv, int argc, struct error *err) {
    struct memory m = {0};
    struct tier_case c;
    int status = open_stream(s, argv[1], argv[2], err);
    if (status == 0 && mkdir(argv[4], 0700) && errno != EEXIST)
        status = fail(err, "%s: cannot create: %s", argv[4], strerror(errno));
    for (int i = 5; i < argc && status == 0; i++) status = read_case(argv[i], &c, err);
    for (int i = 5; i < argc && status == 0; i++) {
        read_case(argv[i], &c, err);
        status = show_case(s, &c, argv[4], &m, err);
    }
    close_memory(&m);
    close_stream(s);
    return status;
}

int main(int argc, char **argv) {
    struct stream s = {.batches = argc > 5 ? atoi(argv[3]) : 0};
    struct error err;
    if (s.batches < 2 || s.batches > BATCHES_MAX) {
        fprintf(stderr, "usage: tiers SPEC TRACE|- BATCHES(2 to %d) DIRECTORY CASE ...\n",
                BATCHES_MAX);
        return EXIT_USAGE;
    }
    if (show_all(&s, argv, argc, &err)) {
        fprintf(stderr, "tiers: %s\n", err.text);
        return EXIT_USAGE;
    }
    return EXIT_FINE;
}
