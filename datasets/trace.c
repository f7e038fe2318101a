/* SPDX-License-Identifier: MIT
 *
 * Reading recorded id streams. Text is read whole (zlib decompresses where there is something to
 * decompress) and scanned once, digit by digit: about 10 ns an id. Every array grows by half, so
 * memory stays within a small multiple of the text's size.
 */
#include "datasets/trace.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "datasets/npy.h"

/* Larger ids are no row numbers but raw keys or hashes, and their table would not fit anywhere. */
static const int64_t id_limit = (int64_t)1 << 48;

enum { FIRST_ROOM = 4096, GZ_BUFFER = 1 << 17, READ_MAX = 1 << 30 };

/* A list of int64 that grows. */
struct int64s {
    int64_t *at;
    size_t count, room;
};

/* Makes room for more elements of the given size. */
static int grow(const char *name, void **at, size_t *room, size_t element, struct error *err) {
    size_t more = *room ? *room + *room / 2 : FIRST_ROOM, bytes;
    void *moved = __builtin_mul_overflow(more, element, &bytes) ? NULL : realloc(*at, bytes);
    if (!moved) return fail(err, "%s: out of memory; use a shorter trace", name);
    *at = moved;
    *room = more;
    return 0;
}

static inline int push(const char *name, struct int64s *list, int64_t value, struct error *err) {
    if (list->count == list->room) {
        void *at = list->at;
        if (grow(name, &at, &list->room, sizeof *list->at, err)) return -1;
        list->at = at;
    }
    list->at[list->count++] = value;
    return 0;
}

/* Gives back what was grown too much; a failure to shrink is harmless. */
static int64_t *shrunk(struct int64s *list) {
    int64_t *at = realloc(list->at, list->count * sizeof *list->at);
    return at ? at : list->at;
}

/* Hands over offsets and ids, which both live on the heap: to *out, or to nobody on failure. */
static int finish(const char *name, struct int64s *offsets, struct int64s *ids, struct trace *out,
                  struct error *err) {
    if (ids->count == 0)
        return fail(err, "%s: empty trace, no lookup at all; give a file with ids", name);
    int64_t largest = 0;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->at[i] > largest) largest = ids->at[i];
    *out = (struct trace){
        .bags = (int64_t)offsets->count - 1,
        .lookups = (int64_t)ids->count,
        .rows = largest + 1,
        .offsets = shrunk(offsets),
        .ids = shrunk(ids),
    };
    return 0;
}

/* --- text ---------------------------------------------------------------------------------- */

struct scanner {
    const char *name;
    struct error *err;
    const char *at, *end;
    struct int64s ids,
        offsets; /* offsets.count is the number of the line: bags before it, plus 1 */
};

static bool is_digit(const char *at, const char *end) {
    return at < end && *at >= '0' && *at <= '9';
}

static int bad_character(const struct scanner *s) {
    unsigned char c = (unsigned char)*s->at;
    char shown[8];
    snprintf(shown, sizeof shown, c > ' ' && c < 127 ? "'%c'" : "0x%02x", c);
    return fail(s->err, "%s: line %zu: %s is not a digit; ids are decimal, separated by blanks",
                s->name, s->offsets.count, shown);
}

/* The id that starts here. */
static int scan_id(struct scanner *s) {
    if (*s->at == '-' && is_digit(s->at + 1, s->end))
        return fail(s->err, "%s: line %zu: negative id; drop padding from the file, ids start at 0",
                    s->name, s->offsets.count);
    if (!is_digit(s->at, s->end)) return bad_character(s);
    int64_t id = 0;
    for (; is_digit(s->at, s->end); s->at++) {
        id = id * 10 + (*s->at - '0');
        if (id >= id_limit)
            return fail(s->err,
                        "%s: line %zu: an id is not below 2^48; map the ids to 0, 1, 2, ...",
                        s->name, s->offsets.count);
    }
    if (s->at < s->end && !memchr(" \t\r\n", *s->at, 4)) return bad_character(s);
    return push(s->name, &s->ids, id, s->err);
}

/* Steps over the end of a line, if this is one: \n, \r\n, or the end of the text. */
static bool end_line(struct scanner *s) {
    const char *at = s->at;
    if (at < s->end && *at == '\r') at++;
    if (at < s->end && *at != '\n') return false;
    s->at = at < s->end ? at + 1 : at;
    return true;
}

static int scan_line(struct scanner *s) {
    for (;;) {
        while (s->at < s->end && (*s->at == ' ' || *s->at == '\t')) s->at++;
        if (end_line(s)) break;
        if (scan_id(s)) return -1;
    }
    return push(s->name, &s->offsets, (int64_t)s->ids.count, s->err);
}

int trace_parse_text(const char *name, const char *text, uint64_t size, struct trace *out,
                     struct error *err) {
    *out = (struct trace){0};
    if (size == 0) text = "";
    struct scanner s = {.name = name, .err = err, .at = text, .end = text + size};
    int failed = push(name, &s.offsets, 0, err);
    while (!failed && s.at < s.end) failed = scan_line(&s);
    if (!failed) failed = finish(name, &s.offsets, &s.ids, out, err);
    if (failed) {
        free(s.ids.at);
        free(s.offsets.at);
    }
    return failed;
}

/* Why the stream ended before its end, or 0 where it did not. A cut stream is no error to gzread:
 * it returns what there was, and only gzerror tells. */
static int stream_status(const char *path, gzFile f, struct error *err) {
    int code;
    const char *text = gzerror(f, &code);
    if (code == Z_OK) return 0;
    if (code == Z_ERRNO) return fail(err, "%s: cannot read: %s", path, strerror(errno));
    if (code == Z_BUF_ERROR)
        return fail(err, "%s: the compressed stream is cut short; copy the file again", path);
    return fail(err, "%s: the compressed stream is corrupt (zlib: %s); copy the file again", path,
                text);
}

/* The whole text behind an open stream, in a buffer on the heap. */
static int read_stream(const char *path, gzFile f, char **text, uint64_t *size, struct error *err) {
    size_t count = 0, room = 0;
    void *at = NULL;
    int got = 1, failed = 0;
    while (got > 0 && !failed) {
        if (count == room) failed = grow(path, &at, &room, 1, err);
        if (failed) break;
        size_t free_bytes = room - count;
        got =
            gzread(f, (char *)at + count, free_bytes < READ_MAX ? (unsigned)free_bytes : READ_MAX);
        if (got > 0) count += (size_t)got;
    }
    if (!failed) failed = stream_status(path, f, err);
    if (failed) {
        free(at);
        return -1;
    }
    *text = at;
    *size = count;
    return 0;
}

static int read_text(const char *path, struct trace *out, struct error *err) {
    errno = 0;
    gzFile f = gzopen(path, "rb");
    if (!f) return fail(err, "%s: cannot open: %s", path, strerror(errno ? errno : ENOMEM));
    gzbuffer(f, GZ_BUFFER);
    char *text = NULL;
    uint64_t size = 0;
    int failed = read_stream(path, f, &text, &size, err);
    if (gzclose(f) != Z_OK && !failed)
        failed = fail(err, "%s: cannot read to the end; copy the file again", path);
    if (!failed) failed = trace_parse_text(path, text, size, out, err);
    free(text);
    return failed;
}

/* --- arrays -------------------------------------------------------------------------------- */

/* A one-dimensional integer array as int64. */
static int read_int64s(const char *path, struct int64s *out, struct error *err) {
    struct npy a;
    if (npy_read(path, &a, err)) return -1;
    int failed = 0;
    if (a.num_dims != 1 || a.type == NPY_FLOAT32)
        failed = fail(err, "%s: has %d dimensions of %s; save one dimension of int32 or int64",
                      path, a.num_dims, a.type == NPY_FLOAT32 ? "floats" : "integers");
    for (int64_t i = 0; !failed && a.type == NPY_INT32 && i < a.count; i++)
        failed = push(path, out, ((const int32_t *)a.data)[i], err);
    if (!failed && a.type == NPY_INT64) {
        *out = (struct int64s){.at = a.data, .count = (size_t)a.count, .room = (size_t)a.count};
        a.data = NULL;
    }
    npy_free(&a);
    return failed;
}

static int check_ids(const char *path, const struct int64s *ids, struct error *err) {
    for (size_t i = 0; i < ids->count; i++)
        if (ids->at[i] < 0 || ids->at[i] >= id_limit)
            return fail(err, "%s: element %zu is %lld; ids lie in 0 .. 2^48-1: correct or map it",
                        path, i, (long long)ids->at[i]);
    return 0;
}

static int check_offsets(const char *path, const struct int64s *offsets, size_t num_ids,
                         struct error *err) {
    size_t n = offsets->count;
    const int64_t *at = offsets->at;
    if (n == 0) return fail(err, "%s: no elements; bags + 1 offsets are needed", path);
    if (at[0] != 0)
        return fail(err, "%s: element 0 is %lld; offsets start at 0", path, (long long)at[0]);
    for (size_t i = 1; i < n; i++)
        if (at[i] < at[i - 1])
            return fail(err, "%s: element %zu is %lld, less than %lld before it; sort the bags",
                        path, i, (long long)at[i], (long long)at[i - 1]);
    if ((uint64_t)at[n - 1] != num_ids)
        return fail(err,
                    "%s: the last element, %zu, is %lld, but there are %zu ids; save both again",
                    path, n - 1, (long long)at[n - 1], num_ids);
    return 0;
}

/* prefix_length: characters of path before ".ids.npy". */
static int read_arrays(const char *path, size_t prefix_length, struct trace *out,
                       struct error *err) {
    char offsets_path[PATH_MAX];
    int n =
        snprintf(offsets_path, sizeof offsets_path, "%.*s.offsets.npy", (int)prefix_length, path);
    if (n >= (int)sizeof offsets_path)
        return fail(err, "%.60s...: the path is too long; shorten it", path);
    struct int64s ids = {0}, offsets = {0};
    int failed = read_int64s(path, &ids, err);
    if (!failed) failed = read_int64s(offsets_path, &offsets, err);
    if (!failed) failed = check_ids(path, &ids, err);
    if (!failed) failed = check_offsets(offsets_path, &offsets, ids.count, err);
    if (!failed) failed = finish(path, &offsets, &ids, out, err);
    if (failed) {
        free(ids.at);
        free(offsets.at);
    }
    return failed;
}

/* Characters of path before the ending, or -1 where it ends otherwise. */
static int64_t before(const char *path, const char *ending) {
    size_t n = strlen(path), e = strlen(ending);
    return n >= e && strcmp(path + n - e, ending) == 0 ? (int64_t)(n - e) : -1;
}

int trace_read(const char *path, struct trace *out, struct error *err) {
    *out = (struct trace){0};
    int64_t prefix_length = before(path, ".ids.npy");
    if (prefix_length >= 0) return read_arrays(path, (size_t)prefix_length, out, err);
    if (before(path, ".txt") >= 0 || before(path, ".txt.gz") >= 0) return read_text(path, out, err);
    return fail(err, "%s: no known kind of trace; accepted are *.txt, *.txt.gz and *.ids.npy",
                path);
}

void trace_free(struct trace *t) {
    free(t->ids);
    free(t->offsets);
    *t = (struct trace){0};
}
