/* SPDX-License-Identifier: MIT
 *
 * A kernel's memory is its declared scratch and nothing else: `run` never allocates, scratch of
 * exactly the declared size is enough, and no more memory becomes resident. This program is linked
 * with -Wl,--wrap for every function that allocates memory, so that it counts calls from kernels;
 * the OpenMP runtime is not linked in and may allocate. For a device kernel only calls of CUDA
 * count, since CUDA, emulated or not, has its own allocator.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"

/* --- counting */

static bool counting[2]; /* by place; changes only while one thread runs */
static int calls;

static void count_call(enum backend place) {
    if (counting[place]) __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
}

/* The linker calls these instead of the functions, and gives the functions the __real_ names. */
#define WRAP(place, type, name, parameters, arguments)                                             \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        count_call(place);                                                                         \
        return __real_##name arguments;                                                            \
    }

WRAP(ON_HOST, void *, malloc, (size_t n), (n))
WRAP(ON_HOST, void *, calloc, (size_t n, size_t size), (n, size))
WRAP(ON_HOST, void *, realloc, (void *p, size_t n), (p, n))
WRAP(ON_HOST, void *, aligned_alloc, (size_t align, size_t n), (align, n))
WRAP(ON_HOST, int, posix_memalign, (void **p, size_t align, size_t n), (p, align, n))
WRAP(ON_HOST, void *, mmap, (void *at, size_t n, int prot, int flags, int file, off_t from),
     (at, n, prot, flags, file, from))
WRAP(ON_DEVICE, int, cudaMalloc, (void **p, size_t n), (p, n))
WRAP(ON_DEVICE, int, cudaMallocHost, (void **p, size_t n), (p, n))
WRAP(ON_DEVICE, int, cudaHostAlloc, (void **p, size_t n, unsigned flags), (p, n, flags))

/* A kernel that runs another one and counts its calls. */
static const struct kernel *watched;

static int run_watched(const struct batch *in, const struct rule_step *steps,
                       const struct table *io, const struct launch *how) {
    counting[watched->place] = true;
    int status = watched->run(in, steps, io, how);
    counting[watched->place] = false;
    return status;
}

static int plan_watched(const struct batch *in, const struct launch *how) {
    counting[watched->place] = true;
    int status = watched->plan(in, how);
    counting[watched->place] = false;
    return status;
}

/* Calls during a second run: the first run does not count, because its first parallel region may
 * start threads. */
static int calls_of(struct builder *b, const struct kernel *k, int way) {
    struct kernel counted = *k;
    counted.run = run_watched;
    counted.plan = k->plan ? plan_watched : NULL;
    watched = k;
    for (int i = 0; i < 2; i++) {
        builder_start(b);
        calls = 0;
        const char *wrong = builder_run(b, &counted, way);
        if (wrong) fail_msg("%s", wrong);
    }
    return calls;
}

/* --- kernels that break the rules */

enum { PAGE = 4096, HOARD = 16 << 20 };

/* volatile, or the compiler removes memory that is not used. */
static void release(void *volatile p) {
    free(p);
}

int cudaMalloc(void **p, size_t n);
int cudaFree(void *p);

#define MISDEED(name, place, ...)                                                                  \
    static void by_##name(void) {                                                                  \
        void *p = NULL;                                                                            \
        __VA_ARGS__;                                                                               \
    }
#define MISDEEDS(X)                                                                                \
    X(malloc, ON_HOST, p = malloc(64), release(p))                                                 \
    X(calloc, ON_HOST, p = calloc(1, 64), release(p))                                              \
    X(realloc, ON_HOST, p = realloc(NULL, 64), release(p))                                         \
    X(aligned_alloc, ON_HOST, p = aligned_alloc(64, 64), release(p))                               \
    X(posix_memalign, ON_HOST, if (!posix_memalign(&p, 64, 64)) release(p))                        \
    X(mmap, ON_HOST, p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);          \
      munmap(p, PAGE))                                                                             \
    X(cudaMalloc, ON_DEVICE, if (!cudaMalloc(&p, 64)) cudaFree(p))
MISDEEDS(MISDEED)

static const struct misdeed {
    const char *name;
    void (*take)(void);
    enum backend place;
} misdeeds[] = {
#define LISTED(name, place, ...) {#name, by_##name, place},
    MISDEEDS(LISTED)};

static void (*misbehaves)(void);

static int run_misbehaving(const struct batch *in, const struct rule_step *steps,
                           const struct table *io, const struct launch *how) {
    (void)in, (void)steps, (void)io;
    misbehaves();
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static void build_small(struct builder *b) {
    builder_begin(b, 31, true);
    builder_feature(b, builder_table(b, 4, 4), POOL_SUM, -1);
    builder_bag(b, 1, (const int64_t[]){2});
    builder_finish(b);
}

static void caught(void **state) {
    const struct misdeed *m = ((const struct kernel_test *)*state)->param;
    const struct kernel k = {.name = "misbehaving", .place = m->place, .run = run_misbehaving};
    if (WITH_SANITIZER && m->place == ON_HOST) skip(); /* a sanitizer has its own allocator */
    struct builder b;
    build_small(&b);
    misbehaves = m->take;
    assert_int_equal(calls_of(&b, &k, 1), 1);
    builder_free(&b);
}

/* --- every kernel */

/* A rule with much state, if the kernel applies it. */
static enum rule_kind rich_rule(const struct kernel *k) {
    return kernel_applies(k, RULE_adam) ? RULE_adam : RULE_sgd;
}

static void never_allocates(void **state) {
    const struct kernel_test *test = *state;
    const struct kernel *k = test->kernel;
    if (WITH_SANITIZER) skip();
    for (int i = 0; i < num_shapes; i++) {
        struct builder b;
        if (i % (k->place == ON_DEVICE ? 6 : 3) || shapes[i].flags & SHAPE_LARGE)
            continue; /* calls do not depend on values */
        shape_build(&shapes[i], k, shapes[i].modes != REAL_ONLY, &b);
        builder_rules(&b, k, rich_rule(k));
        /* Most threads, and one. On a device only the order differs, and no call depends on it. */
        for (int w = 0; w < (k->place == ON_HOST ? WAYS : 1); w += WAYS - 1) {
            int n = calls_of(&b, k, builder_way[w]);
            if (n)
                fail_msg("%s, %s: %d calls for memory", shapes[i].name,
                         builder_name_way(k, builder_way[w]), n);
        }
        builder_free(&b);
    }
}

/* --- resident memory */

/* Bytes that become resident in a run whose scratch is untouched before. The first of two runs loads
 * code. */
static int64_t resident_in_run(struct builder *b, const struct kernel *k, size_t bytes) {
    const struct rule_step step = rule_step(b->rules[0], 1);
    struct error err;
    int64_t resident = 0;
    for (int run = 0; run < 2; run++) {
        struct buffer scratch;
        if (buffer_alloc(&scratch, bytes, "scratch", &err)) fail_msg("%s", err.text);
        const struct launch how = {.threads = 2, .scratch = scratch.data};
        const struct memory_watch watch = memory_watch();
        if (k->plan) assert_int_equal(k->plan(&b->in, &how), 0);
        k->run(&b->in, &step, b->tables.tables, &how);
        resident = memory_watch_peak(watch);
        buffer_free(&scratch);
    }
    return resident;
}

/* For stacks, and for the system's rounding. */
enum { SLACK = 4 << 20 };

static void build_big(struct builder *b) {
    builder_begin(b, 32, true);
    builder_feature(b, builder_table(b, 60000, 64), POOL_SUM, -1);
    builder_random_bags(b, 20000, 30); /* 300,000 lookups */
    builder_finish(b);
    builder_start(b);
}

/* test_kernels shows that the declared scratch is enough for more threads: builder_run hands out
 * exactly that much, poisoned. This test shows that declarations are not simply huge. */
static void declares_in_proportion(const struct builder *b, size_t declared) {
    const size_t per_lookup = 64 + 64 * sizeof(float); /* index and its own gradient row */
    const size_t per_row = 16 + 64 * sizeof(float);
    assert_true(declared <= (size_t)b->in.lookups * per_lookup + 60000 * per_row + (1 << 20));
}

static void resident_as_declared(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct builder b;
    build_big(&b);
    size_t declared = k->scratch_bytes ? k->scratch_bytes(&b.in, 2) : 0;
    declares_in_proportion(&b, declared);
    if (k->place == ON_HOST && !WITH_SANITIZER && memory_watch().before >= 0) {
        const int64_t observed = resident_in_run(&b, k, declared);
        if (observed > (int64_t)declared + SLACK)
            fail_msg("%lld bytes became resident, %zu are declared", (long long)observed, declared);
    }
    builder_free(&b);
}

/* So many lookups that the test notices if row_index_bytes forgets the copy that qsort makes. */
static void index_as_required(void **state) {
    (void)state;
    if (WITH_SANITIZER || memory_watch().before < 0) skip();
    struct builder b;
    build_big(&b);
    const struct memory_watch w = memory_watch();
    struct row_index index = row_index_build(&b.in);
    assert_in_range(memory_watch_peak(w), 0, row_index_bytes(b.in.lookups) + SLACK);
    row_index_free(&index);
    builder_free(&b);
}

/* Touches far more than it declares. (Not from malloc, which may have resident pages left.) */
static void hoard(void) {
    void *p = mmap(NULL, HOARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    memset(p, 1, HOARD);
    munmap(p, HOARD);
}

static void hoarder_caught(void **state) {
    static const struct kernel hoarding = {.name = "hoarding", .run = run_misbehaving};
    (void)state;
    if (WITH_SANITIZER || memory_watch().before < 0) skip();
    struct builder b;
    build_big(&b);
    misbehaves = hoard;
    assert_true(resident_in_run(&b, &hoarding, 0) > SLACK);
    builder_free(&b);
}

TESTS(memory) {
    for (size_t i = 0; i < sizeof misdeeds / sizeof *misdeeds; i++)
        add_test(misdeeds[i].name, caught, NULL, &misdeeds[i]);
    add_test("the index takes what is required for it", index_as_required, NULL, NULL);
    add_test("a hoarder", hoarder_caught, NULL, NULL);
    add_kernel_tests("never allocates", never_allocates, NULL);
    add_kernel_tests("resident as declared", resident_as_declared, NULL);
    return run_listed("memory");
}
