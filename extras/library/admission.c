/* SPDX-License-Identifier: MIT
 *
 * A counter goes through a fixed sequence of values, one for each touch, until it says "admitted". Which
 * thread makes which touch does not matter, so neither does the number of threads.
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "harness/workload/batch_fill.h"
#include "extras/library/model.h"

enum { MOST_HASHES = 64 };

/* --- counters */

static uint32_t counter_most(const struct embfuse_admission *a) {
    return UINT32_MAX >> (32 - 8 * a->counter_bytes);
}

static uint32_t counter_read(const struct embfuse_admission *a, int64_t i) {
    switch (a->counter_bytes) {
    case 1: return __atomic_load_n((const uint8_t *)a->counters + i, __ATOMIC_RELAXED);
    case 2: return __atomic_load_n((const uint16_t *)a->counters + i, __ATOMIC_RELAXED);
    default: return __atomic_load_n((const uint32_t *)a->counters + i, __ATOMIC_RELAXED);
    }
}

/* Replaces `old` by `new`; false: there was another value. */
static bool counter_swap(const struct embfuse_admission *a, int64_t i, uint32_t old, uint32_t new) {
    uint8_t old8 = (uint8_t)old;
    uint16_t old16 = (uint16_t)old;
    switch (a->counter_bytes) {
    case 1:
        return __atomic_compare_exchange_n((uint8_t *)a->counters + i, &old8, (uint8_t) new, false,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    case 2:
        return __atomic_compare_exchange_n((uint16_t *)a->counters + i, &old16, (uint16_t) new,
                                           false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    default:
        return __atomic_compare_exchange_n((uint32_t *)a->counters + i, &old, new, false,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

/* The value that says "admitted". */
static uint32_t counter_goal(const struct embfuse_admission *a) {
    return a->kind == EMBFUSE_ADMIT_COUNT ? (uint32_t)a->threshold : counter_most(a);
}

static uint64_t key_of(const struct embfuse_admission *a) {
    return rng_key(a->seed, (uint64_t)(uint32_t)a->table);
}

/* The value after one more touch of the id. */
static uint32_t counter_after(const struct embfuse_admission *a, int64_t id, uint32_t value) {
    if (a->kind == EMBFUSE_ADMIT_CHANCE &&
        rng_unit(rng_key(key_of(a), (uint64_t)id), value) < a->probability)
        return counter_most(a);
    return value + 1;
}

static void counter_touch(const struct embfuse_admission *a, int64_t id, int64_t i) {
    uint32_t value;
    do {
        value = counter_read(a, i);
        if (value >= counter_goal(a)) return;
    } while (!counter_swap(a, i, value, counter_after(a, id, value)));
}

/* --- ids */

/* Counter number h of an id: a hash, scaled to the number of counters. */
static int64_t hashed(const struct embfuse_admission *a, int64_t id, int32_t h) {
    const uint64_t hash = rng_u64(rng_key(key_of(a), (uint64_t)h), (uint64_t)id);
    return (int64_t)((unsigned __int128)hash * (uint64_t)a->num_counters >> 64);
}

static void touch(const struct embfuse_admission *a, int64_t id) {
    if (!a->hashes) counter_touch(a, id, id);
    for (int32_t h = 0; h < a->hashes; h++) counter_touch(a, id, hashed(a, id, h));
}

static bool admitted(const struct embfuse_admission *a, int64_t id) {
    if (!a->hashes) return counter_read(a, id) >= counter_goal(a);
    for (int32_t h = 0; h < a->hashes; h++)
        if (counter_read(a, hashed(a, id, h)) < counter_goal(a)) return false;
    return true;
}

/* Lookups begin .. end-1 of some ids. */
struct run {
    const struct batch *in; /* only ids and id_type */
    int64_t begin, end, padding;
    int threads;
};

static void count_run(const struct embfuse_admission *a, const struct run *r) {
#pragma omp parallel for num_threads(r->threads) if (r->end - r->begin > PARALLEL_FROM)
    for (int64_t i = r->begin; i < r->end; i++) {
        const int64_t id = batch_id(r->in, i);
        if (id != r->padding) touch(a, id);
    }
}

/* a NULL: everything is admitted. Returns the number of rejected lookups. */
static int64_t write_run(const struct embfuse_admission *a, const struct run *r, void *out) {
    int64_t rejected = 0;
#pragma omp parallel for num_threads(r->threads) if (r->end - r->begin > PARALLEL_FROM)            \
    reduction(+ : rejected)
    for (int64_t i = r->begin; i < r->end; i++) {
        const int64_t id = batch_id(r->in, i);
        const bool keep = !a || id == r->padding || admitted(a, id);
        put_id(r->in->id_type, out, i, keep ? id : r->padding);
        rejected += !keep;
    }
    return rejected;
}

/* --- is a call right? */

static const char *bad_admission(const struct embfuse_admission *a) {
    if (a->size != sizeof *a) return "size is not sizeof(struct embfuse_admission)";
    if (a->counter_bytes != 1 && a->counter_bytes != 2 && a->counter_bytes != 4)
        return "counter_bytes is 1, 2 or 4";
    if (!a->counters || a->num_counters < 1 || (uintptr_t)a->counters % (size_t)a->counter_bytes)
        return "there are no counters, or they are not aligned to their size";
    if (a->hashes < 0 || a->hashes > MOST_HASHES) return "hashes is 0 to 64";
    if (a->reserved) return "reserved is not 0";
    switch (a->kind) {
    case EMBFUSE_ADMIT_COUNT:
        if (a->threshold >= 1 && a->threshold <= (int64_t)counter_most(a)) return NULL;
        return "threshold is 1 to the largest value of a counter";
    case EMBFUSE_ADMIT_CHANCE:
        if (a->hashes) return "chance needs a counter for each id: hashes is 0";
        return a->probability > 0 && a->probability <= 1 ? NULL : "probability is above 0, up to 1";
    default: return "kind is EMBFUSE_ADMIT_COUNT or EMBFUSE_ADMIT_CHANCE";
    }
}

/* The admission to a table; NULL: it has none. */
static const struct embfuse_admission *admission_to(const struct embfuse_admission *admissions,
                                                    int32_t count, int32_t table) {
    for (int32_t i = 0; i < count; i++)
        if (admissions[i].table == table) return &admissions[i];
    return NULL;
}

static const char *bad_for_model(const struct embfuse_model *m,
                                 const struct embfuse_admission *admissions, int32_t i) {
    const struct embfuse_admission *a = &admissions[i];
    if (a->table < 0 || a->table >= m->num_tables) return "the model has no such table";
    if (admission_to(admissions, i, a->table)) return "its table has another admission";
    if (!a->hashes && a->num_counters < m->shapes[a->table].rows)
        return "its table has more rows than there are counters";
    for (int32_t f = 0; f < m->num_features; f++)
        if (m->features[f].table == a->table && m->features[f].padding_id < 0)
            return "a feature of its table has no padding";
    return NULL;
}

static int check_model(const struct embfuse_model *m, const struct embfuse_admission *admissions,
                       int32_t count, struct embfuse_error *why) {
    if (!admissions || count < 0)
        return said(why, EMBFUSE_INVALID, "admissions are NULL, or count is below 0");
    if (m->place == ON_DEVICE)
        return said(why, EMBFUSE_INVALID, "admission is for ids on the host");
    for (int32_t i = 0; i < count; i++) {
        const char *bad = bad_admission(&admissions[i]);
        if (!bad) bad = bad_for_model(m, admissions, i);
        if (bad) return said(why, EMBFUSE_INVALID, "admission %d: %s", i, bad);
    }
    return 0;
}

/* --- calls */

int embfuse_admit(struct embfuse_model *m, const struct embfuse_admission *admissions,
                  int32_t count, const struct embfuse_batch *batch, void *ids_out,
                  int64_t *rejected, struct embfuse_error *why) {
    IN_CALL(m, why);
    struct batch in;
    int64_t sum = 0;
    int status = check_model(m, admissions, count, why);
    if (status == 0) status = batch_of(m, batch, &in, why);
    if (status == 0 && !ids_out && in.lookups)
        status = said(why, EMBFUSE_INVALID, "ids_out is NULL");
    if (status) return status;
    /* All features of a table are counted before one is written. */
    for (int pass = 0; pass < 2; pass++)
        for (int32_t f = 0; f < in.num_features; f++) {
            const struct feature *x = &in.features[f];
            const struct embfuse_admission *a = admission_to(admissions, count, x->table);
            const struct run r = {&in, x->first_lookup, x->first_lookup + x->lookups, x->padding_id,
                                  m->threads};
            if (pass == 1)
                sum += write_run(a, &r, ids_out);
            else if (a && !a->frozen)
                count_run(a, &r);
        }
    if (rejected) *rejected = sum;
    return 0;
}

/* The first id without a counter, or the number of ids. */
static int64_t first_beyond(const struct embfuse_admission *a, const struct run *r) {
    int64_t first = r->end;
#pragma omp parallel for num_threads(r->threads) if (r->end > PARALLEL_FROM) reduction(min : first)
    for (int64_t i = 0; i < r->end; i++) {
        const int64_t id = batch_id(r->in, i);
        if (id != r->padding && (id < 0 || id >= a->num_counters) && i < first) first = i;
    }
    return first;
}

int embfuse_admit_ids(const struct embfuse_admission *a, const void *ids, int32_t id_type,
                      int64_t lookups, int64_t padding_id, int32_t threads, void *ids_out,
                      int64_t *rejected, struct embfuse_error *why) {
    const char *bad = a ? bad_admission(a) : "it is NULL";
    if (bad) return said(why, EMBFUSE_INVALID, "admission: %s", bad);
    if (id_type != EMBFUSE_INT32 && id_type != EMBFUSE_INT64)
        return said(why, EMBFUSE_INVALID, "id_type is EMBFUSE_INT32 or EMBFUSE_INT64");
    if (lookups < 0 || threads < 0 || (lookups && (!ids || !ids_out)))
        return said(why, EMBFUSE_INVALID, "lookups or threads are below 0, or ids are NULL");
    if (id_type == EMBFUSE_INT32 && padding_id != (int32_t)padding_id)
        return said(why, EMBFUSE_INVALID, "padding_id does not fit into an id");
    const struct batch in = {.ids = ids, .id_type = id_type_of(id_type)};
    const struct run r = {&in, 0, lookups, padding_id, threads ? threads : omp_get_max_threads()};
    if (has_threads(r.threads, why)) return EMBFUSE_FORKED;
    const int64_t first = a->hashes ? lookups : first_beyond(a, &r);
    if (first < lookups)
        return said(why, EMBFUSE_BAD_BATCH, "lookup %lld: id %lld has no counter of %lld",
                    (long long)first, (long long)batch_id(&in, first), (long long)a->num_counters);
    if (!a->frozen) count_run(a, &r);
    const int64_t sum = write_run(a, &r, ids_out);
    if (rejected) *rejected = sum;
    return 0;
}

/* The number of hashes that needs the fewest counters (Bloom, CACM 1970), and the counters that it needs
 * after rounding. */
int embfuse_admission_filter(int64_t ids, double probability, int64_t *num_counters,
                             int32_t *hashes, struct embfuse_error *why) {
    if (ids < 1 || !(probability > 0 && probability < 1) || !num_counters || !hashes)
        return said(why, EMBFUSE_INVALID,
                    "filter: %lld ids, probability %g; at least 1, and between 0 and 1",
                    (long long)ids, probability);
    const double best = round(-log2(probability));
    const double k = best < 1 ? 1 : best > MOST_HASHES ? MOST_HASHES : best;
    const double counters = ceil(-k * (double)ids / log1p(-pow(probability, 1 / k)));
    if (!(counters < 0x1p62))
        return said(why, EMBFUSE_INVALID, "filter: too many ids: %lld", (long long)ids);
    *hashes = (int32_t)k;
    *num_counters = (int64_t)counters;
    return 0;
}
