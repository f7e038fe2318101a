/* SPDX-License-Identifier: MIT
 *
 * Chooses a reader by the ending of the file's name, and reads traces that are arrays. trace_text.c
 * reads the others.
 */
#include "harness/workload/trace.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/workload/npy.h"
#include "harness/memory.h"

void trace_count_rows(struct trace *t) {
    int64_t largest = 0;
    for (int64_t i = 0; i < t->lookups; i++)
        if (t->ids[i] > largest) largest = t->ids[i];
    t->rows = largest + 1;
}

static int check_ids(const char *path, const struct trace *t, struct error *err) {
    if (t->lookups == 0)
        return fail(err, "%s: empty trace, no lookup at all; give a file with ids", path);
    for (int64_t i = 0; i < t->lookups; i++)
        if (t->ids[i] < 0 || t->ids[i] >= trace_id_limit)
            return fail(err, "%s: element %lld is %lld; ids lie in 0 .. 2^48-1: correct or map it",
                        path, (long long)i, (long long)t->ids[i]);
    return 0;
}

static int check_offsets(const char *path, const int64_t *at, int64_t n, int64_t num_ids,
                         struct error *err) {
    if (n == 0) return fail(err, "%s: no elements; bags + 1 offsets are needed", path);
    if (at[0] != 0)
        return fail(err, "%s: element 0 is %lld; offsets start at 0", path, (long long)at[0]);
    for (int64_t i = 1; i < n; i++)
        if (at[i] < at[i - 1])
            return fail(err, "%s: element %lld is %lld, less than %lld before it; sort the bags",
                        path, (long long)i, (long long)at[i], (long long)at[i - 1]);
    if (at[n - 1] != num_ids)
        return fail(err,
                    "%s: the last element, %lld, is %lld, but there are %lld ids; save both again",
                    path, (long long)n - 1, (long long)at[n - 1], (long long)num_ids);
    return 0;
}

/* Characters of path before the ending, or -1 if it has another ending. */
static int64_t before(const char *path, const char *ending) {
    size_t n = strlen(path), e = strlen(ending);
    return n >= e && strcmp(path + n - e, ending) == 0 ? (int64_t)(n - e) : -1;
}

/* Bag b has the one id b. */
static int one_id_a_bag(const char *path, struct trace *t, struct error *err) {
    t->bags = t->lookups;
    t->offsets = array_require(t->bags + 1, sizeof *t->offsets, path, err);
    if (!t->offsets) return -1;
    for (int64_t b = 0; b <= t->bags; b++) t->offsets[b] = b;
    return 0;
}

/* X.npy may have offsets in X.offsets.npy; otherwise each bag has one id. X.ids.npy must have
 * offsets, so that a lost file does not go unnoticed. */
static int read_offsets(const char *path, struct trace *t, struct error *err) {
    char offsets[PATH_MAX];
    int64_t length = before(path, ".ids.npy");
    bool wanted = length >= 0;
    if (!wanted) length = before(path, ".npy");
    if (snprintf(offsets, sizeof offsets, "%.*s.offsets.npy", (int)length, path) >= PATH_MAX)
        return fail(err, "%.60s...: the path is too long; shorten it", path);
    bool missing = access(offsets, F_OK) != 0;
    if (missing && !wanted) return one_id_a_bag(path, t, err);
    if (missing)
        return fail(err,
                    "%s: cannot open: %s; bag b is ids[offsets[b]] to ids[offsets[b+1]-1], so that "
                    "there are bags + 1 offsets; for one id a bag rename the ids to X.npy",
                    offsets, strerror(errno));
    int64_t count;
    t->offsets = npy_read_int64s(offsets, &count, err);
    t->bags = count - 1;
    return t->offsets ? check_offsets(offsets, t->offsets, count, t->lookups, err) : -1;
}

static int read_arrays(const char *path, struct trace *out, struct error *err) {
    out->ids = npy_read_int64s(path, &out->lookups, err);
    if (out->ids && check_ids(path, out, err) == 0 && read_offsets(path, out, err) == 0) {
        trace_count_rows(out);
        return 0;
    }
    trace_free(out);
    return -1;
}

bool trace_is_named(const char *path) {
    char first[PATH_MAX];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(path, ","), path);
    return before(first, ".txt") >= 0 || before(first, ".txt.gz") >= 0 ||
           before(first, ".npy") >= 0;
}

int trace_read(const char *path, struct trace *out, struct error *err) {
    *out = (struct trace){0};
    if (before(path, ".offsets.npy") >= 0)
        return fail(err, "%s: these are the offsets of a trace; name the file of its ids", path);
    if (before(path, ".npy") >= 0) return read_arrays(path, out, err);
    if (trace_is_named(path)) return trace_read_text(path, out, err);
    return fail(err,
                "%s: no known kind of trace; accepted are *.txt, *.txt.gz and *.npy; "
                "make import FROM='%s' makes one of other files",
                path, path);
}

void trace_free(struct trace *t) {
    free(t->ids);
    free(t->offsets);
    *t = (struct trace){0};
}
