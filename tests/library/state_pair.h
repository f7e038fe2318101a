/* SPDX-License-Identifier: MIT
 *
 * A directory with two states, to be damaged. Include it last, as cmocka_cases.h.
 */
#pragma once

#include <string.h>
#include <xxhash.h>

#include "lib/model.h"
#include "tests/library/state_case.h"

#include "tests/support/kernel_tests.h"

enum { PATH_ROOM = PATH_MAX + 200 };

static const struct embfuse_table tables[] = {
    {.rows = 3, .dim = 2, .rule = "adam_row_bias", .weight_type = EMBFUSE_BF16},
    {.rows = 2, .dim = 3, .rule = "sgd", .weight_type = EMBFUSE_FP8, .rounding = 1}};

/* Two states: that of `old` is number 1, that of `last` number 2. The model `to` has a third. */
struct pair_of_states {
    struct work_path folder;
    struct state_case old, last, to, before; /* before: as `to` */
};

static inline void put(struct state_case *c, int n) {
    for (int32_t t = 0; t < c->num_tables; t++) embfuse_set_steps(c->model, t, n, NULL);
    embfuse_set(c->model, -1, "lr", n, NULL);
}

static inline void begin(struct pair_of_states *s, const char *name) {
    struct embfuse_error why;
    struct state_case *all[] = {&s->old, &s->last, &s->to, &s->before};
    s->folder = state_folder(name);
    for (int n = 0; n < 4; n++) {
        const int like = n < 3 ? n + 1 : 3;
        const struct embfuse_options o = {.size = sizeof o, .rounding_seed = (uint64_t)like};
        state_case_open(all[n], tables, 2, &o, 4, (uint64_t)like);
        put(all[n], like);
        if (n < 2 && embfuse_save(all[n]->model, s->folder.text, &why)) fail_msg("%s", why.text);
    }
}

static inline void end(struct pair_of_states *s) {
    state_case_free(&s->old);
    state_case_free(&s->last);
    state_case_free(&s->to);
    state_case_free(&s->before);
}

static inline void expect_equal(struct state_case *a, struct state_case *b, const char *what) {
    const char *differs = state_case_differs(a, b);
    if (!differs) differs = state_case_settings_differ(a, b);
    if (differs) fail_msg("%s: %s", what, differs);
}

/* The load gives the older state, and says why. Then the model is as before. */
static inline void expect_older(struct pair_of_states *s, const char *what, const char *said) {
    struct embfuse_error why = {""};
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    if (embfuse_load(s->to.model, s->folder.text, &loaded, &why))
        fail_msg("%s: %s", what, why.text);
    if (loaded.number != 1 || loaded.passed_over != 1)
        fail_msg("%s: loaded %d, passed over %d", what, (int)loaded.number, loaded.passed_over);
    if (!strstr(loaded.damage, said)) fail_msg("%s: '%s', wanted '%s'", what, loaded.damage, said);
    expect_equal(&s->to, &s->old, what);
    state_case_scramble(&s->to, 3);
    put(&s->to, 3);
    set_rounding_seed(s->to.model, 3);
}

static inline void expect_error(struct pair_of_states *s, int status, const char *said) {
    struct embfuse_error why = {""};
    struct embfuse_loaded loaded = {.size = sizeof loaded, .number = -5};
    const int is = embfuse_load(s->to.model, s->folder.text, &loaded, &why);
    if (is != status || !strstr(why.text, said))
        fail_msg("status %d: '%s', wanted %d: '%s'", is, why.text, status, said);
    assert_int_equal(loaded.number, -5);
    assert_int_equal(embfuse_load(s->to.model, s->folder.text, NULL, NULL), status);
    expect_equal(&s->to, &s->before, said);
}

static inline const char *file_of(const struct pair_of_states *s, int number, const char *name) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/state-%08d/%s", s->folder.text, number, name);
    return path;
}

/* --- manifests whose checksum is right */

static inline void seal(const struct pair_of_states *s, int number, const char *text, size_t size) {
    char whole[4096];
    assert_true(size + 30 < sizeof whole);
    memcpy(whole, text, size);
    snprintf(whole + size, sizeof whole - size, "end %016llx\n",
             (unsigned long long)XXH3_64bits(text, size));
    work_write(file_of(s, number, "manifest"), whole, strlen(whole));
}

struct edit {
    const char *from, *to; /* to NULL: to is the rest of the text */
    const char *said;      /* "": it is taken */
};

static inline char *edited(const char *text, size_t body, const struct edit *e) {
    static char out[4096];
    const char *at = strstr(text, e->from);
    if (!at) fail_msg("the manifest lacks '%s'", e->from);
    const char *rest = e->to ? at + strlen(e->from) : text + body;
    snprintf(out, sizeof out, "%.*s%s%.*s", (int)(at - text), text, e->to ? e->to : "",
             (int)(text + body - rest), rest);
    return out;
}
