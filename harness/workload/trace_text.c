/* SPDX-License-Identifier: MIT
 *
 * Scans text traces twice, in the pieces that zlib returns. The first scan counts, so that the
 * reader knows the exact memory before it allocates; the second scan stores.
 */
#include "harness/workload/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "harness/memory.h"
#include "harness/workload/regular_file.h"

enum { PIECE = 1 << 18 };

static int64_t arrays_bytes(int64_t lookups, int64_t bags) {
    return (lookups + bags + 1) * (int64_t)sizeof(int64_t);
}

/* Arrays for what was counted. */
static int alloc_arrays(const char *name, int64_t lookups, int64_t bags, struct trace *out,
                        struct error *err) {
    *out = (struct trace){.bags = bags, .lookups = lookups};
    if (lookups == 0)
        return fail(err, "%s: empty trace, no lookup at all; give a file with ids", name);
    if (memory_require(arrays_bytes(lookups, bags), name, err)) return -1;
    out->offsets = malloc((size_t)(bags + 1) * sizeof *out->offsets);
    out->ids = malloc((size_t)lookups * sizeof *out->ids);
    if (out->offsets && out->ids) return 0;
    return fail(err, "%s: out of memory; use a shorter trace", name);
}

/* The scan of a text that comes in pieces, which may end anywhere. */
struct scanner {
    const char *name;
    struct error *err;
    enum { AFTER_BLANK, AFTER_DIGIT, AFTER_MINUS, AFTER_RETURN } state;
    bool in_line; /* the line already has text */
    int64_t id;   /* AFTER_DIGIT: its digits so far */
    int64_t lookups, bags;
    struct trace *into; /* NULL: only counts */
};

static int bad_character(const struct scanner *s, unsigned char c) {
    char shown[8];
    snprintf(shown, sizeof shown, c > ' ' && c < 127 ? "'%c'" : "0x%02x", c);
    return fail(s->err, "%s: line %lld: %s is not a digit; ids are decimal, separated by blanks",
                s->name, (long long)s->bags + 1, shown);
}

/* If a file grows, the second scan may find more than the first. */
static int changed(const struct scanner *s) {
    return fail(s->err, "%s: changed while it was read; try again", s->name);
}

static int end_id(struct scanner *s) {
    if (s->into && s->lookups == s->into->lookups) return changed(s);
    if (s->into) s->into->ids[s->lookups] = s->id;
    s->lookups++;
    return 0;
}

static int end_line(struct scanner *s) {
    if (s->into && s->bags == s->into->bags) return changed(s);
    s->bags++;
    if (s->into) s->into->offsets[s->bags] = s->lookups;
    return 0;
}

static inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* All digits from here on; returns where they end, or NULL and fills err. */
static const char *scan_digits(struct scanner *s, const char *at, const char *end) {
    int64_t id = s->state == AFTER_DIGIT ? s->id : 0;
    if (s->state == AFTER_RETURN) {
        bad_character(s, '\r');
        return NULL;
    }
    if (s->state == AFTER_MINUS) {
        fail(s->err, "%s: line %lld: negative id; drop padding from the file, ids start at 0",
             s->name, (long long)s->bags + 1);
        return NULL;
    }
    for (; at < end && is_digit(*at); at++) {
        id = id * 10 + (*at - '0');
        if (id >= trace_id_limit) {
            fail(s->err, "%s: line %lld: an id is not below 2^48; map the ids to 0, 1, 2, ...",
                 s->name, (long long)s->bags + 1);
            return NULL;
        }
    }
    s->id = id;
    s->state = AFTER_DIGIT;
    s->in_line = true;
    return at;
}

/* A character that is not a digit. Lines end in \n or \r\n. */
static int scan_other(struct scanner *s, unsigned char c) {
    bool had_id = s->state == AFTER_DIGIT;
    if (s->state == AFTER_RETURN && c != '\n') return bad_character(s, '\r');
    if (s->state == AFTER_MINUS) return bad_character(s, '-');
    bool minus = c == '-' && !had_id;
    if (!minus && !memchr(" \t\r\n", c, 4)) return bad_character(s, c);
    s->state = minus ? AFTER_MINUS : c == '\r' ? AFTER_RETURN : AFTER_BLANK;
    s->in_line = c != '\n';
    if (had_id && end_id(s)) return -1;
    return c == '\n' ? end_line(s) : 0;
}

static int scan_piece(struct scanner *s, const char *at, const char *end) {
    while (at < end) {
        if (!is_digit(*at)) {
            if (scan_other(s, (unsigned char)*at++)) return -1;
        } else if (!(at = scan_digits(s, at, end))) {
            return -1;
        }
    }
    return 0;
}

static int scan_end(struct scanner *s) {
    if (s->state == AFTER_MINUS) return bad_character(s, '-');
    if (s->state == AFTER_DIGIT && end_id(s)) return -1;
    return s->in_line ? end_line(s) : 0;
}

/* A text in memory, or behind an open stream. */
struct text {
    const char *name, *bytes;
    uint64_t size;
    gzFile file;
    char *piece;
};

/* Why the stream ended early, or 0 if it is complete. gzread() returns the bytes of a cut stream
 * without an error; only gzerror() reports it. */
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

/* A small file can decompress to any size. Every id has at most 15 digits and a blank, twice what
 * it takes in memory: text beyond that is padded. */
static int judge(const struct scanner *s, int64_t text, int64_t available) {
    const double gib = 1 << 30;
    if (arrays_bytes(s->lookups, s->bags) > available)
        return fail(s->err,
                    "%s: needs more than the %.1f GiB that are available; use a shorter trace",
                    s->name, (double)available / gib);
    if (text / 2 <= available) return 0;
    return fail(s->err, "%s: more than %.1f GiB of text; use a shorter trace, without padding",
                s->name, 2 * (double)available / gib);
}

/* Reports an error of the stream before an error of its text. */
static int scan_stream(struct scanner *s, const struct text *t) {
    int64_t size = 0, available = memory_available();
    int failed = 0, got;
    while ((got = gzread(t->file, t->piece, PIECE)) > 0) {
        size += got;
        if (judge(s, size, available)) return -1;
        if (!failed) failed = scan_piece(s, t->piece, t->piece + got);
    }
    return stream_status(s->name, t->file, s->err) || failed ? -1 : scan_end(s);
}

static int scan(struct scanner *s, const struct text *t) {
    if (t->file) return scan_stream(s, t);
    return scan_piece(s, t->bytes, t->bytes + t->size) ? -1 : scan_end(s);
}

static int read_text(const struct text *t, struct trace *out, struct error *err) {
    struct scanner counts = {.name = t->name, .err = err}, stores = counts;
    if (scan(&counts, t)) return -1;
    int failed = alloc_arrays(t->name, counts.lookups, counts.bags, out, err);
    if (!failed) {
        out->offsets[0] = 0;
        stores.into = out;
        failed = t->file && gzrewind(t->file) ? stream_status(t->name, t->file, err) : 0;
    }
    if (!failed) failed = scan(&stores, t);
    if (!failed && (stores.lookups != counts.lookups || stores.bags != counts.bags))
        failed = changed(&stores);
    if (failed) trace_free(out);
    if (!failed) trace_count_rows(out);
    return failed;
}

int trace_parse_text(const char *name, const char *text, uint64_t size, struct trace *out,
                     struct error *err) {
    *out = (struct trace){0};
    return read_text(&(struct text){.name = name, .bytes = size ? text : "", .size = size}, out,
                     err);
}

int trace_read_text(const char *path, struct trace *out, struct error *err) {
    int64_t size;
    int fd = regular_file_open(path, &size, err);
    if (fd < 0) return -1;
    struct text t = {.name = path, .file = gzdopen(fd, "rb"), .piece = malloc(PIECE)};
    if (!t.file) close(fd);
    int failed = t.file && t.piece ? read_text(&t, out, err) : fail(err, "%s: out of memory", path);
    free(t.piece);
    if (t.file) gzclose(t.file);
    return failed;
}
