/* SPDX-License-Identifier: MIT
 *
 * Ids and offsets that exist only in device memory: validation finds errors before a kernel runs,
 * with the host's messages, and writes nothing.
 */
#include <stdio.h>
#include <string.h>

#include "harness/device/device.h"
#include "tests/support/generate.h"

/* Feature 0 reads a table of 10 rows, feature 1 one of 7; 4 bags each, of two lookups. */
static const char spec[] = "workload w\nbatch 4\ntable rows 10 dim 3 length fixed 2\n"
                           "table rows 7 dim 3 length fixed 2\n";

struct mistake {
    const char *test;
    enum { IN_IDS, IN_OFFSETS, IN_NOTHING } array;
    int64_t at, value;
    const char *message;
};

static const struct mistake mistakes[] = {
    {"a good batch", IN_NOTHING, 0, 0, NULL},
    {"the largest id", IN_IDS, 3, 9, NULL},
    {"an id past its table", IN_IDS, 5, 10,
     "feature 0, bag 2, lookup 5: id 10 is no row of a table of 10 rows"},
    {"an id that fits the other table only", IN_IDS, 8, 7,
     "feature 1, bag 0, lookup 8: id 7 is no row of a table of 7 rows"},
    {"a negative id", IN_IDS, 15, -1,
     "feature 1, bag 3, lookup 15: id -1 is no row of a table of 7 rows"},
    {"an offset that falls", IN_OFFSETS, 3, 3, "feature 0, bag 2: offsets 4 to 3"},
    {"an offset past the lookups", IN_OFFSETS, 2, 1000, "feature 0, bag 1: offsets 2 to 1000"},
    {"offsets that start late", IN_OFFSETS, 0, 1, "offsets start at 1; they must start at 0"},
    {"offsets that end early", IN_OFFSETS, 8, 15, "15"},
};

static void plant(struct device_batch *d, const struct mistake *m, struct error *err) {
    char *ids = d->ids.data;
    int64_t *offsets = d->offsets.data;
    int32_t narrow = (int32_t)m->value;
    bool wide = d->batch.id_type == ID_INT64;
    int status = 0;
    if (m->array == IN_IDS && wide) status = device_put(ids + 8 * m->at, &m->value, 8, err);
    if (m->array == IN_IDS && !wide) status = device_put(ids + 4 * m->at, &narrow, 4, err);
    if (m->array == IN_OFFSETS) status = device_put(offsets + m->at, &m->value, 8, err);
    assert_int_equal(status, 0);
}

static void found(void **state) {
    const struct mistake *m = *state;
    struct error err = {""};
    if (device_open(&err)) fail_msg("%s", err.text);
    for (int wide = 0; wide < 2; wide++) {
        char text[200];
        snprintf(text, sizeof text, "%sid_type %s\n", spec, wide ? "int64" : "int32");
        struct workload w = generate(text, 1, GRAD_EXACT);
        struct device_batch d;
        if (device_batch_create(&d, &w.batches[0], &err)) fail_msg("%s", err.text);
        plant(&d, m, &err);
        int status = device_batch_validate(&d, &err);
        assert_int_equal(status, m->message ? -1 : 0);
        if (m->message && !strstr(err.text, m->message)) fail_msg("said: %s", err.text);
        assert_false(device_lost());
        device_batch_free(&d);
        workload_free(&w);
    }
}

TESTS(device_validate) {
    ADD_CASES(mistakes, found);
    return run_listed("device_validate");
}
