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

#include "harness/device/device.h"
#include "tests/support/device_case.h"
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

enum misdeed { MALLOC, CALLOC, REALLOC, ALIGNED_ALLOC, POSIX_MEMALIGN, MMAP, OVERRUN, MISDEEDS };

static const char *const misdeed_names[MISDEEDS] = {
    "malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "mmap", "a byte too far",
};

static enum misdeed misdeed;

enum { SCRATCH = 1000, PAGE = 4096 };

__attribute__((no_sanitize("address"))) static void scribble(volatile char *at) {
    *at = 1;
}

static void *take(enum misdeed how, size_t bytes) {
    void *p = NULL;
    switch (how) {
    case MALLOC: return malloc(bytes);
    case CALLOC: return calloc(1, bytes);
    case REALLOC: return realloc(NULL, bytes);
    case ALIGNED_ALLOC: return aligned_alloc(64, bytes);
    case POSIX_MEMALIGN: return posix_memalign(&p, 64, bytes) ? NULL : p;
    default: return NULL;
    }
}

static int misbehave(const struct batch *in, const struct rule_step *steps, const struct table *io,
                     const struct launch *how) {
    (void)in, (void)steps, (void)io;
    if (misdeed == OVERRUN) {
        scribble((char *)how->scratch + SCRATCH);
    } else if (misdeed == MMAP) {
        void *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) munmap(p, PAGE);
    } else {
        void *volatile p =
            take(misdeed, 64); /* volatile, or the compiler removes the unused memory */
        free(p);
    }
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static size_t some_scratch(const struct batch *shape, int threads) {
    (void)shape, (void)threads;
    return SCRATCH;
}

/* The same on a device: the kernel allocates memory there. */
int cudaMalloc(void **p, size_t n);
int cudaFree(void *p);

static int misbehave_on_device(const struct batch *in, const struct rule_step *steps,
                               const struct table *io, const struct launch *how) {
    (void)in, (void)steps, (void)io;
    void *p;
    if (cudaMalloc(&p, 64) == 0) cudaFree(p);
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static const struct kernel misbehaving_on_device = {.name = "misbehaving",
                                                    .place = ON_DEVICE,
                                                    .scratch_bytes = some_scratch,
                                                    .run = misbehave_on_device};

static const struct kernel misbehaving = {
    .name = "misbehaving", .place = ON_HOST, .scratch_bytes = some_scratch, .run = misbehave};

static void build_small(struct builder *b) {
    builder_begin(b, 31, true);
    builder_feature(b, builder_table(b, 4, 4), POOL_SUM, -1);
    builder_bag(b, 1, (const int64_t[]){2});
    builder_finish(b);
}

static void caught_on_device(void **state) {
    (void)state;
    struct builder b;
    build_small(&b);
    assert_int_equal(calls_of(&b, &misbehaving_on_device, 1), 1);
    builder_free(&b);
}

static void caught(void **state) {
    misdeed = (enum misdeed)(intptr_t)((const struct kernel_test *)*state)->param;
    if (WITH_SANITIZER && misdeed != OVERRUN) skip(); /* a sanitizer has its own allocator */
    struct builder b;
    build_small(&b);
    if (misdeed == OVERRUN) {
        builder_start(&b);
        const char *wrong = builder_run(&b, &misbehaving, 1);
        assert_non_null(wrong);
        assert_string_equal(wrong, "wrote outside of its scratch");
    } else {
        assert_int_equal(calls_of(&b, &misbehaving, 1), 1);
    }
    builder_free(&b);
}

/* --- every kernel */

static int states_of(enum rule_kind rule) {
    return 8 * rule_elem_states(rule) + rule_row_states(rule);
}

/* The rule with the most state that the kernel can update. */
static enum rule_kind richest_rule(const struct kernel *k) {
    enum rule_kind richest = RULE_sgd;
    for (int rule = 0; rule < RULE_COUNT; rule++)
        if (kernel_applies(k, (enum rule_kind)rule) &&
            states_of((enum rule_kind)rule) > states_of(richest))
            richest = (enum rule_kind)rule;
    return richest;
}

static void never_allocates(void **state) {
    const struct kernel_test *test = *state;
    const struct kernel *k = test->kernel;
    if (WITH_SANITIZER) skip();
    for (int i = 0; i < num_shapes; i++) {
        struct builder b;
        if (k->place == ON_DEVICE && i % 4)
            continue; /* the host's code decides by the batch alone */
        shape_build(&shapes[i], k, shapes[i].modes != REAL_ONLY, &b);
        builder_rules(&b, k, richest_rule(k));
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

static void plan_and_run(struct builder *b, const struct kernel *k, const struct rule_step *steps,
                         const struct launch *how) {
    if (k->plan) assert_int_equal(k->plan(&b->in, how), 0);
    k->run(&b->in, steps, b->tables.tables, how);
}

/* Bytes that become resident in a run whose scratch is untouched before. */
static int64_t resident_in_run(struct builder *b, const struct kernel *k, struct buffer *scratch) {
    struct rule_step *steps = malloc((size_t)b->in.num_tables * sizeof *steps);
    assert_non_null(steps);
    for (int32_t t = 0; t < b->in.num_tables; t++) steps[t] = rule_step(b->rules[t], 1);
    struct launch how = {.threads = 2, .scratch = scratch->data};
    plan_and_run(b, k, steps, &how);
    struct error err;
    const size_t bytes = scratch->bytes;
    buffer_free(scratch);
    if (buffer_alloc(scratch, bytes, "scratch", &err)) fail_msg("%s", err.text);
    how.scratch = scratch->data;
    struct memory_watch watch = memory_watch();
    plan_and_run(b, k, steps, &how);
    free(steps);
    return memory_watch_peak(watch);
}

/* For stacks, and for the system's rounding. */
enum { SLACK = 4 << 20 };

static void build_big(struct builder *b) {
    builder_begin(b, 32, true);
    builder_feature(b, builder_table(b, 60000, 64), POOL_SUM, -1);
    builder_random_bags(b, 20000, 30);
    builder_finish(b);
    builder_start(b);
}

static void resident_as_declared(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    if (WITH_SANITIZER) skip(); /* shadow memory also becomes resident */
    if (memory_watch().before < 0) skip();
    struct builder b;
    build_big(&b);
    struct buffer scratch;
    struct error err;
    size_t declared = k->scratch_bytes ? k->scratch_bytes(&b.in, 2) : 0;
    assert_int_equal(buffer_alloc(&scratch, declared, "scratch", &err), 0);
    int64_t observed = resident_in_run(&b, k, &scratch);
    if (observed > (int64_t)declared + SLACK)
        fail_msg("%lld bytes became resident, %lld are declared", (long long)observed,
                 (long long)declared);
    buffer_free(&scratch);
    builder_free(&b);
}

/* The device has no less free memory after a step than before it. */
static void device_memory_as_declared(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct builder b;
    build_small(&b);
    builder_rules(&b, k, richest_rule(k));
    builder_start(&b);
    struct device_case d;
    struct error err;
    assert_int_equal(device_case_create(&d, &b, k, &err), 0);
    assert_int_equal(device_run(&d.job, NULL, NULL, &err), 0); /* CUDA loads code at first use */
    int64_t before = device_facts().free_memory;
    assert_int_equal(device_run(&d.job, NULL, NULL, &err), 0);
    assert_int_equal(device_facts().free_memory, before);
    device_case_free(&d);
    builder_free(&b);
}

/* So many lookups that the test notices if row_index_bytes forgets the copy that qsort makes. */
static void index_as_required(void **state) {
    (void)state;
    if (WITH_SANITIZER) skip();
    if (memory_watch().before < 0) skip();
    struct builder b;
    builder_begin(&b, 33, true);
    builder_feature(&b, builder_table(&b, 60000, 1), POOL_SUM, -1);
    builder_random_bags(&b, 100000, 30);
    builder_finish(&b);
    struct memory_watch w = memory_watch();
    struct row_index index = row_index_build(&b.in);
    int64_t observed = memory_watch_peak(w), required = row_index_bytes(b.in.lookups);
    if (observed > required + SLACK)
        fail_msg("%lld bytes became resident, %lld are required", (long long)observed,
                 (long long)required);
    row_index_free(&index);
    builder_free(&b);
}

enum { HOARD = 16 << 20 };

/* Touches far more than it declares. (Not from malloc, which may have resident pages left.) */
static int hoard(const struct batch *in, const struct rule_step *steps, const struct table *io,
                 const struct launch *how) {
    (void)in, (void)steps, (void)io, (void)how;
    void *p = mmap(NULL, HOARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return -1;
    memset(p, 1, HOARD);
    munmap(p, HOARD);
    return 0;
}

static void hoarder_caught(void **state) {
    static const struct kernel hoarding = {.name = "hoarding", .run = hoard};
    (void)state;
    if (WITH_SANITIZER) skip();
    if (memory_watch().before < 0) skip();
    struct builder b;
    build_big(&b);
    struct buffer scratch = {0};
    assert_true(resident_in_run(&b, &hoarding, &scratch) > SLACK);
    builder_free(&b);
}

/* test_kernels shows that the declared scratch is enough for more threads: builder_run hands out
 * exactly that much, poisoned. This test shows that declarations are not simply huge. */
static void declares_in_proportion(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct builder b;
    build_big(&b);
    size_t declared = k->scratch_bytes ? k->scratch_bytes(&b.in, 2) : 0;
    size_t per_lookup = 64 + 64 * sizeof(float); /* index and its own gradient row */
    size_t per_row = 16 + 64 * sizeof(float);
    size_t most = (size_t)b.in.lookups * per_lookup + 60000 * per_row + (1 << 20);
    assert_true(declared <= most);
    builder_free(&b);
}

TESTS(memory) {
    for (intptr_t i = 0; i < MISDEEDS; i++) {
        char name[60];
        snprintf(name, sizeof name, "caught: %s", misdeed_names[i]);
        add_test(name, caught, NULL, (const void *)i);
    }
    add_test("caught: a hoarder", hoarder_caught, NULL, NULL);
    add_test("the index takes what is required for it", index_as_required, NULL, NULL);
    add_test("caught: cudaMalloc", caught_on_device, NULL, NULL);
    add_kernel_tests("never allocates", never_allocates, NULL);
    add_kernel_tests_on(ON_HOST, "resident as declared", resident_as_declared, NULL);
    add_kernel_tests_on(ON_DEVICE, "leaves device memory alone", device_memory_as_declared, NULL);
    add_kernel_tests("declares in proportion", declares_in_proportion, NULL);
    return run_listed("memory");
}
