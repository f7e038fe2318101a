/* SPDX-License-Identifier: MIT
 *
 * Steps over a stream of batches with tables on a disk and a share of their rows in memory, beside the same steps with all
 * rows in memory.
 *
 *   tiers SPEC TRACE BATCHES DIRECTORY CASE ...
 *
 * SPEC is the text of a workload. TRACE: its ids and lengths, or - . The first half of BATCHES warms the cache up,
 * the second is measured. DIRECTORY: of the tables. CASE is one of
 *
 *   BUDGET                        hits of every policy, without any rows
 *   BUDGET,POLICY,AHEAD           steps of cpu_fused, with AHEAD batches fetched while one runs
 *   BUDGET,POLICY,AHEAD,STORE     the same, with another store in place of files: rocksdb
 *
 * Prints a line of JSON for each; with "lacks" alone if the slots are fewer than the rows of a batch. Gradients are
 * exact, so rows of the last batch must have the bits of tables in memory. Times are those of the whole measured half,
 * its beginning and end without overlap included. Tables in memory take the same steps before and after each case, a
 * median each.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/measure/runner.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "kernels/rng.h"
#include "extras/tiers/study/stream.h"
#include "extras/tiers/io.h"
#include "extras/tiers/place_tier.h"

enum { DEPTH = 64, SAMPLED = 4096, PROBED = 16384 };

struct tier_case {
    double budget;
    enum policy policy;
    int ahead;
    bool hits;
    enum { FILES, ROCKSDB, STORES } store;
    int number; /* of the case: each has a folder */
};

/* --- steps */

static const struct store_kind {
    const char *name;
    store_open *open;
} stores[STORES] = {[FILES] = {"files", file_store}, [ROCKSDB] = {"rocksdb", rocksdb_store}};

/* Steps of batches from .. to-1; [ahead] of them are announced while one runs. */
static int steps(const struct stream *s, struct place *p, struct place_scratch *scratch, int from,
                 int to, int ahead, double *seconds, struct error *err) {
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", err);
    const double begin = clock_seconds();
    int announced = from;
    for (int b = from; b < to; b++) {
        for (; ahead && announced < to && announced <= b + ahead; announced++)
            if (tier_announce(p, announced, true, err)) return -1;
        const struct place_job job = {.kernel = k,
                                      .batch = b,
                                      .steps = s->rules + (int64_t)b * s->workload.num_tables,
                                      .scratch = scratch};
        if (p->ops->run(p, &job, err)) return -1;
    }
    *seconds = clock_seconds() - begin;
    return 0;
}

/* A hash of rows of the last batch, with their states. */
static int rows_hash(const struct stream *s, struct place *p, uint64_t *hash, struct error *err) {
    const int32_t tables = s->workload.num_tables;
    const struct row_index *index = &s->index[s->batches - 1];
    struct table_shape *shapes = must_have(calloc((size_t)tables, sizeof *shapes));
    struct table_set one = {0}; /* row of each table */
    for (int32_t t = 0; t < tables; t++) {
        shapes[t] = s->workload.tables[t];
        shapes[t].rows = 1;
    }
    int status = tables_create(&one, shapes, tables, 0, err);
    *hash = 0;
    for (int64_t i = 0; i < index->rows && status == 0; i += 1 + index->rows / SAMPLED) {
        const struct row_run *run = &index->run[i];
        struct table *row = &one.tables[run->table];
        status = p->ops->get_rows(p, run->table, run->row, run->row + 1, row, err);
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (table_memory_stride(&shapes[run->table], a))
                *hash = XXH3_64bits_withSeed(row->array[a].data,
                                             table_memory_bytes(&shapes[run->table], a), *hash);
    }
    tables_free(&one);
    free(shapes);
    return status;
}

/* Records per second of the disk, at random places of the first table: what no policy can be quicker than. Writes put back what
 * was read. */
static int probe(const struct stream *s, const char *directory, int64_t bytes, double *reads,
                 double *writes, struct error *err) {
    char path[PATH_MAX + 8];
    struct stat info;
    snprintf(path, sizeof path, "%s/rows.0", directory);
    const int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info)) return fail(err, "%s: no direct I/O here", path);
    const int64_t records = info.st_size / bytes;
    const int64_t count = records < PROBED ? records : PROBED, stride = records / count;
    char *data = must_have(aligned_alloc(4096, (size_t)((count * bytes + 4095) / 4096 * 4096)));
    struct io_request *r = must_have(calloc((size_t)count, sizeof *r));
    for (int64_t i = 0; i < count; i++)
        r[i] = (struct io_request){i * stride * bytes, data + i * bytes, (size_t)bytes};
    for (int64_t i = count - 1; i > 0; i--) { /* Fisher and Yates */
        const int64_t other = (int64_t)(rng_u64(s->workload.seed, (uint64_t)i) % (uint64_t)(i + 1));
        const struct io_request x = r[i];
        r[i] = r[other];
        r[other] = x;
    }
    struct io *io = io_open_any(DEPTH, err);
    int status = io ? 0 : -1;
    double begin = clock_seconds();
    if (status == 0) status = io_read(io, fd, path, r, count, err);
    *reads = (double)count / (clock_seconds() - begin);
    begin = clock_seconds();
    if (status == 0) status = io_write(io, fd, path, r, count, err);
    *writes = (double)count / (clock_seconds() - begin);
    io_close(io);
    close(fd);
    free(r);
    free(data);
    return status;
}

struct memory {
    struct place *place;
    struct place_scratch scratch;
    uint64_t hash; /* of rows of the last batch, after each has run once */
};

static int open_memory(const struct stream *s, struct memory *m, struct error *err) {
    double seconds;
    m->place = place_host_open(&s->setup, err);
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", err);
    return !m->place || runner_scratch_open(m->place, k, &m->scratch, err) ||
                   steps(s, m->place, &m->scratch, 0, s->batches, 0, &seconds, err) ||
                   rows_hash(s, m->place, &m->hash, err)
               ? -1
               : 0;
}

static void close_memory(struct memory *m) {
    if (m->scratch.data) m->place->ops->scratch_close(m->place, &m->scratch);
    if (m->place) m->place->ops->close(m->place);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The measured half with all rows in memory: the median of several, since one takes milliseconds. The other half runs before
 * each, as with slots, so that gradients are in no cache. */
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

struct measured {
    const char *engine;
    double seconds, memory[2], reads, writes;
    struct tier_counts before, after;
    struct usage used[2]; /* before and after */
    int64_t page_cache;
    int64_t bytes, whole_bytes;
    uint64_t hash;
};

/* Lookups of the batches that are measured: they change no row, and afterwards all rows are in slots if there are as many. */
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

static int measure(const struct stream *s, const struct tier_case *c, const char *folder,
                   struct place *p, struct memory *m, struct measured *out, struct error *err) {
    struct place_scratch scratch = {0};
    double seconds;
    if (runner_scratch_open(p, registry_find(OP_STEP, "cpu_fused", err), &scratch, err)) return -1;
    int status = steps(s, p, &scratch, 0, s->warm, c->ahead, &seconds, err);
    if (status == 0 && c->budget == 1) status = look_up_all(s, p, &scratch, err);
    out->before = tier_counts(p);
    if (status == 0) status = memory_time(s, m, &out->memory[0], err);
    out->used[0] = usage_now();
    if (status == 0)
        status = steps(s, p, &scratch, s->warm, s->batches, c->ahead, &out->seconds, err);
    out->used[1] = usage_now();
    out->page_cache = page_cache_of(folder);
    if (status == 0) status = memory_time(s, m, &out->memory[1], err);
    if (status == 0) {
        out->after = tier_counts(p);
        out->bytes = tier_bytes(p);
        status = rows_hash(s, p, &out->hash, err);
    }
    p->ops->scratch_close(p, &scratch);
    return status;
}

static void print_case(const struct stream *s, const struct tier_case *c, const struct memory *m,
                       const struct measured *x, int64_t record) {
    const struct tier_counts *a = &x->before, *b = &x->after;
    printf("{\"store\": \"%s\", \"engine\": \"%s\", \"policy\": \"%s\", \"budget\": %g, \"ahead\": "
           "%d, "
           "\"batches\": %d, \"record\": %lld, \"right\": %s, ",
           stores[c->store].name, x->engine, policy_names[c->policy], c->budget, c->ahead,
           s->batches - s->warm, (long long)record, x->hash == m->hash ? "true" : "false");
#define COUNT(name, field)                                                                         \
    printf("\"%s\": %lld, ", name, (long long)(b->field < 0 ? -1 : b->field - a->field))
#define SECONDS(name) printf("\"%s\": %.6g, ", #name, b->name - a->name)
    COUNT("lookups", lookups);
    COUNT("lookup_misses", lookup_misses);
    COUNT("rows", rows);
    COUNT("row_misses", row_misses);
    COUNT("written_back", written_back);
    COUNT("stored", store.stored);
    COUNT("read", store.read);
    COUNT("written", store.written);
    SECONDS(index);
    SECONDS(fetch);
    SECONDS(write_back);
    SECONDS(remap);
    SECONDS(held);
    SECONDS(wait);
#undef COUNT
#undef SECONDS
    const struct usage *from = &x->used[0], *to = &x->used[1];
    printf("\"faults\": %lld, \"disk_read\": %lld, \"disk_written\": %lld, \"page_cache\": %lld, ",
           (long long)(to->faults - from->faults), (long long)(to->disk_read - from->disk_read),
           (long long)(to->disk_written - from->disk_written), (long long)x->page_cache);
    printf("\"seconds\": %.6g, \"memory\": [%.6g, %.6g], \"reads\": %.6g, \"writes\": %.6g, "
           "\"bytes\": %lld, \"whole_bytes\": %lld}\n",
           x->seconds, x->memory[0], x->memory[1], x->reads, x->writes, (long long)x->bytes,
           (long long)x->whole_bytes);
    fflush(stdout);
}

/* Rows of the largest batch beyond the slots. */
static int64_t lacks_of(const struct stream *s, double budget) {
    int64_t lacks = 0;
    for (int b = 0; b < s->batches; b++)
        for (int32_t t = 0; t < s->workload.num_tables; t++) {
            const int64_t more = row_index_find(&s->index[b], t + 1, 0) -
                                 row_index_find(&s->index[b], t, 0) -
                                 tier_slots(budget, s->workload.tables[t].rows);
            lacks = more > lacks ? more : lacks;
        }
    return lacks;
}

static int show_case(const struct stream *s, const struct tier_case *c, const char *directory,
                     struct memory *m, struct error *err) {
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s%d", directory, stores[c->store].name,
                         c->number) >= sizeof path)
        return fail(err, "%.60s...: too long", directory);
    struct measured x = {.whole_bytes = tables_bytes(s->workload.tables, s->workload.num_tables)};
    const struct tier_options o = {.directory = path,
                                   .store = stores[c->store].open,
                                   .budget = c->budget,
                                   .policy = c->policy,
                                   .belady_runs = s->batches,
                                   .depth = DEPTH,
                                   .direct = true};
    const int64_t lacks = lacks_of(s, c->budget);
    if (lacks) {
        printf("{\"store\": \"%s\", \"policy\": \"%s\", \"budget\": %g, \"ahead\": %d, \"lacks\": "
               "%lld}\n",
               stores[c->store].name, policy_names[c->policy], c->budget, c->ahead,
               (long long)lacks);
        return 0;
    }
    if (!m->place && open_memory(s, m, err)) return -1;
    struct place *p = place_tier_open(&o, &s->setup, err);
    if (!p) return -1;
    x.engine = tier_engine(p);
    const int64_t record = tier_record_bytes(p, 0);
    int status = c->store != FILES ? 0 : probe(s, path, record, &x.reads, &x.writes, err);
    if (status == 0) status = measure(s, c, path, p, m, &x, err);
    p->ops->close(p);
    if (status) return -1;
    print_case(s, c, m, &x, record);
    return x.hash == m->hash ? 0
                             : fail(err,
                                    "%s, budget %g, %d ahead: rows of the last batch are not those "
                                    "of tables in memory",
                                    policy_names[c->policy], c->budget, c->ahead);
}

/* --- the command line */

static int read_case(const char *word, struct tier_case *out, struct error *err) {
    char policy[16], store[16] = "files";
    int end = 0;
    *out = (struct tier_case){.hits = true};
    const int n = sscanf(word, "%lf%n,%15[a-z],%d%n,%15s%n", &out->budget, &end, policy,
                         &out->ahead, &end, store, &end);
    out->store = STORES;
    for (int k = 0; k < STORES; k++)
        if (!strcmp(store, stores[k].name)) out->store = k;
    for (int p = 0; n >= 3 && p < POLICIES; p++)
        if (!strcmp(policy, policy_names[p])) {
            out->policy = (enum policy)p;
            out->hits = false;
        }
    const bool is_case =
        !word[end] &&
        (n == 1 || (!out->hits && out->ahead >= 0 && out->ahead <= 4 && out->store < STORES));
    if (!is_case || !(out->budget > 0 && out->budget <= 1))
        return fail(
            err,
            "'%.60s': a case is BUDGET or BUDGET,POLICY,AHEAD[,STORE]: above 0 and up to 1; lru "
            "lfu or belady; 0 to 4; files or rocksdb",
            word);
    return 0;
}

static int all(struct stream *s, char **argv, int argc, struct error *err) {
    struct memory m = {0};
    struct tier_case c;
    int status = open_stream(s, argv[1], argv[2], err);
    if (status == 0 && mkdir(argv[4], 0700) && errno != EEXIST)
        status = fail(err, "%s: cannot create: %s", argv[4], strerror(errno));
    for (int i = 5; i < argc && status == 0; i++) status = read_case(argv[i], &c, err);
    for (int i = 5; i < argc && status == 0; i++) {
        status = read_case(argv[i], &c, err);
        c.number = i;
        if (status == 0)
            status = c.hits ? show_hits(s, c.budget, err) : show_case(s, &c, argv[4], &m, err);
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
    if (all(&s, argv, argc, &err)) {
        fprintf(stderr, "tiers: %s\n", err.text);
        return EXIT_USAGE;
    }
    return EXIT_FINE;
}
