/* SPDX-License-Identifier: MIT
 *
 * The second half of batch_builder.h: a kernel is run on what was built, and judged.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/device/device.h"
#include "harness/measure/runner.h"
#include "tests/support/device_case.h"
#include "tests/support/batch_builder.h"

#include "tests/support/cmocka_cases.h"

const int builder_way[WAYS] = {8, 3, 2, 1};

bool builder_emulates(const struct kernel *k) {
    struct error err;
    return k && k->place == ON_DEVICE && device_open(&err) == 0 && device_facts().emulated;
}

/* ThreadSanitizer reasons about what is ordered, and not from what happened: one order tells it as
 * much as four. Where rules take turns, two random orders do. On a real device a way is one more
 * run. */
int builder_ways(const struct kernel *k) {
    if (builder_emulates(k))
        return WITH_THREAD_SANITIZER ? 1 : builder_rules_take_turns(k) ? WAYS / 2 : WAYS;
    return k->place == ON_DEVICE ? 2 : WAYS;
}

bool builder_rules_take_turns(const struct kernel *k) {
#ifdef __clang__
    return WITH_SANITIZER || builder_emulates(k);
#else
    (void)k;
    return WITH_SANITIZER;
#endif
}

/* An emulated thread costs 30 ns, 80 ns with AddressSanitizer, 3 us with ThreadSanitizer, 16 us if
 * fibres are renewed (tests/run.sh). */
int builder_smaller(const struct kernel *k) {
    if (!builder_emulates(k)) return 1;
    return WITH_THREAD_SANITIZER ? 128 : 16;
}

const char *builder_name_way(const struct kernel *k, int way) {
    static char name[60];
    snprintf(name, sizeof name, k->place == ON_HOST ? "%d threads" : "order %d of the device", way);
    return name;
}

static void *must(void *p) {
    if (!p) abort();
    return p;
}

static const char *wrong(struct builder *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *wrong(struct builder *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(b->message, sizeof b->message, format, args);
    va_end(args);
    return b->message;
}

void builder_start(struct builder *b) {
    struct error err;
    builder_pack(b);
    if (b->tables.tables) {
        tables_reset(&b->tables);
        return;
    }
    if (tables_create(&b->tables, b->in.tables, b->in.num_tables, b->seed, &err) ||
        tables_create(&b->before, b->in.tables, b->in.num_tables, b->seed, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

/* Copies an array, if the table has it; its bytes. */
static size_t copy_array(const struct table_set *s, int32_t t, int array, void *to) {
    const size_t bytes = table_memory_bytes(&s->shapes[t], array);
    if (bytes) memcpy(to, s->tables[t].array[array].data, bytes);
    return bytes;
}

void *builder_snapshot(const struct builder *b, size_t *bytes) {
    *bytes = (size_t)b->tables.bytes;
    char *copy = must(malloc(*bytes + 1)), *to = copy;
    for (int32_t t = 0; t < b->tables.count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) to += copy_array(&b->tables, t, a, to);
    return copy;
}

static void copy_tables(struct builder *b) {
    for (int32_t t = 0; t < b->tables.count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            copy_array(&b->tables, t, a, b->before.tables[t].array[a].data);
}

/* Scratch holds what somebody left there: NaNs, which some kernels take for empty slots, or not.
 * compute-sanitizer's initcheck takes filled scratch for initialised: it wants none of it. */
static int scratch_byte(int way) {
    if (getenv("UNPOISONED")) return AS_IT_IS;
    return way % 2 ? 0x5a : POISON;
}

static struct place_setup setup_of(struct builder *b, const struct kernel *k, int way) {
    return (struct place_setup){.shapes = b->in.tables,
                                .num_tables = b->in.num_tables,
                                .batches = &b->in,
                                .index = &b->index,
                                .ring = 1,
                                .threads = k->place == ON_HOST ? way : 1,
                                .seed = b->seed,
                                .tables = &b->tables};
}

static struct rule_step *steps_of(const struct builder *b, int64_t number) {
    struct rule_step *steps = must(malloc((size_t)b->in.num_tables * sizeof *steps));
    for (int32_t t = 0; t < b->in.num_tables; t++) steps[t] = rule_step(b->rules[t], number);
    return steps;
}

static struct check check_of(struct builder *b, int64_t step) {
    return (struct check){.in = &b->in,
                          .index = &b->index,
                          .rules = b->rules,
                          .step = step,
                          .before = tables_copy_row,
                          .before_ctx = &b->before,
                          .exact = b->sums_exact};
}

/* One step of the builder's rules on its tables; 1 if the kernel did what no kernel may. */
static int run_at(struct builder *b, const struct kernel *k, int way, struct rule_step *steps,
                  struct error *err) {
    struct place_setup setup = setup_of(b, k, way);
    struct place *p = place_open(k->place, &setup, err);
    struct place_scratch scratch = {0};
    const struct place_job job = {.kernel = k, .steps = steps, .scratch = &scratch};
    if (!p) return -1;
    int status = runner_scratch_open(p, k, &scratch, err);
    device_case_schedule(k, way);
    if (status == 0) status = runner_step(p, &job, scratch_byte(way), err);
    if (status == 0) status = p->ops->intact(p, 0, &scratch, err);
    if (status == 0 && !p->ops->tables(p)) status = place_get_tables(p, &b->tables, err);
    p->ops->scratch_close(p, &scratch);
    p->ops->close(p);
    return status;
}

const char *builder_run(struct builder *b, const struct kernel *k, int way) {
    struct error err;
    copy_tables(b);
    builder_pack(b);
    struct rule_step *steps = steps_of(b, b->step);
    int status = run_at(b, k, way, steps, &err);
    free(steps);
    return status ? wrong(b, "%s", err.text) : NULL;
}

int output_run(struct builder *b, const struct kernel *k, int way, void *output, char text[400]) {
    struct error err = {""};
    struct check_result result = {0};
    struct place_scratch scratch = {0}, out = {0};
    struct place_setup setup = setup_of(b, k, way);
    struct rule_step *steps = steps_of(b, 1);
    struct place *p = place_open(k->place, &setup, &err);
    if (!p) fail_msg("%s", err.text);
    const struct place_job job = {.kernel = k, .steps = steps, .scratch = &scratch, .output = &out};
    if (runner_scratch_open(p, k, &scratch, &err) ||
        runner_output_open(p, &setup, k->operation, &out, &err))
        fail_msg("%s", err.text);
    device_case_schedule(k, way);
    int status = runner_step(p, &job, POISON, &err);
    if (status == 0) status = runner_check(p, &job, check_of(b, 1), &result, &err);
    if (output && p->ops->scratch_get(p, &out, output, &err)) fail_msg("%s", err.text);
    if (!p->ops->tables(p) && place_get_tables(p, &b->tables, &err)) fail_msg("%s", err.text);
    snprintf(text, 400, "%.390s", status > 0 && result.message[0] ? result.message : err.text);
    p->ops->scratch_close(p, &scratch);
    p->ops->scratch_close(p, &out);
    p->ops->close(p);
    free(steps);
    return status;
}

/* --- judging */

const char *builder_judge(struct builder *b, const struct kernel *k) {
    struct check c = check_of(b, b->step);
    c.after = b->tables.tables;
    c.dense = k->traits & DENSE_STEP;
    c.per_lookup = k->traits & STEP_PER_LOOKUP;
    struct check_result r = check_run(&c);
    if (r.undecided && !r.wrong) return wrong(b, "undecided: %s", r.message);
    return r.ok ? NULL : wrong(b, "%lld rows wrong; %s", (long long)r.wrong, r.message);
}

/* "sgd momentum ...": the rules of tables 0, 1, ..., of as many as there are rules. */
static const char *rules_text(const struct builder *b) {
    static char text[40 * RULE_COUNT];
    text[0] = '\0';
    for (int32_t t = 0; t < b->in.num_tables && t < RULE_COUNT; t++)
        text_add(text, sizeof text, "%s%s", t ? " " : "", rule_info(b->shapes[t].rule).name);
    return text;
}

const char *builder_check(struct builder *b, const struct kernel *k, int way) {
    builder_start(b);
    const char *what = builder_run(b, k, way);
    if (!what) what = builder_judge(b, k);
    if (!what) return NULL;
    char text[sizeof b->message];
    memcpy(text, what, sizeof text);
    return wrong(b, "%s, %s, %s gradients, tables of %s: %.600s", k->name, builder_name_way(k, way),
                 b->sums_exact ? "exact"
                 : b->exact    ? "coarse"
                               : "real",
                 rules_text(b), text);
}
