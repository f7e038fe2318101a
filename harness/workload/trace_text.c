/* SPDX-License-Identifier: MIT
 *
 * Scans text traces twice. The first scan counts, so that the reader knows the exact memory before
 * it allocates; the second scan stores.
 */
#include "harness/workload/trace.h"

#include <ctype.h>
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

/* One scan. */
struct scanner {
    const char *name;
    gzFile file;
    struct error *err;
    int64_t available; /* memory */
    int64_t read;      /* characters */
    bool too_large;
    int64_t lookups, bags;
    struct trace *into; /* NULL: only counts */
};

static int64_t arrays_bytes(const struct scanner *s) {
    return (s->lookups + s->bags + 1) * (int64_t)sizeof(int64_t);
}

/* Arrays for what was counted. */
static int alloc_arrays(const struct scanner *counts, struct trace *out) {
    *out = (struct trace){.bags = counts->bags, .lookups = counts->lookups};
    if (out->lookups == 0)
        return fail(counts->err, "%s: empty trace, no lookup at all; give a file with ids",
                    counts->name);
    if (memory_require(arrays_bytes(counts), counts->name, counts->err)) return -1;
    out->offsets = array_alloc(out->bags + 1, sizeof *out->offsets);
    out->ids = array_alloc(out->lookups, sizeof *out->ids);
    if (!out->offsets || !out->ids)
        return fail(counts->err, "%s: out of memory; use a shorter trace", counts->name);
    out->offsets[0] = 0;
    return 0;
}

static int bad_character(const struct scanner *s, int c) {
    char shown[8];
    snprintf(shown, sizeof shown, c > ' ' && c < 127 ? "'%c'" : "0x%02x", c);
    return fail(s->err, "%s: line %lld: %s is not a digit; ids are decimal, separated by blanks",
                s->name, (long long)s->bags + 1, shown);
}

/* Numbers with tabs between them are a table: its columns are no bag. */
static int found_tab(const struct scanner *s) {
    return fail(s->err,
                "%s: line %lld: a tab; blanks separate ids. If this is a table, one of its columns "
                "becomes a trace: "
                "make import FROM='%s' FORMAT=tsv COLUMNS=1 BY=0",
                s->name, (long long)s->bags + 1, s->name);
}

/* A small file can decompress to any size. Every id has at most 15 digits and a blank, twice what
 * it takes in memory: text beyond that is padded. */
static bool too_large(const struct scanner *s) {
    const double gib = 1 << 30, available = (double)s->available;
    if (arrays_bytes(s) > s->available)
        fail(s->err, "%s: needs more than the %.1f GiB that are available; use a shorter trace",
             s->name, available / gib);
    else if (s->read / 2 > s->available)
        fail(s->err, "%s: more than %.1f GiB of text; use a shorter trace, without padding",
             s->name, 2 * available / gib);
    else
        return false;
    return true;
}

/* The next character; -1 at the end, or if the trace is too large. */
static int next(struct scanner *s) {
    if (s->read++ % PIECE == 0) s->too_large |= too_large(s);
    return s->too_large ? -1 : gzgetc(s->file);
}

/* If a file grows, the second scan may find more than the first. */
static int changed(const struct scanner *s) {
    return fail(s->err, "%s: changed while it was read; try again", s->name);
}

static int end_line(struct scanner *s) {
    if (s->into && s->bags == s->into->bags) return changed(s);
    s->bags++;
    if (s->into) s->into->offsets[s->bags] = s->lookups;
    return 0;
}

/* Takes the id that begins with the digit *c, and leaves the character after it there. */
static int take_id(struct scanner *s, int *c) {
    int64_t id = 0;
    for (; isdigit(*c); *c = next(s)) {
        id = id * 10 + (*c - '0');
        if (id >= trace_id_limit)
            return fail(s->err, "%s: line %lld: an id is not below 2^48; map the ids to 0, 1, ...",
                        s->name, (long long)s->bags + 1);
    }
    if (*c == '-') return bad_character(s, *c);
    if (s->into && s->lookups == s->into->lookups) return changed(s);
    if (s->into) s->into->ids[s->lookups] = id;
    s->lookups++;
    return 0;
}

/* Lines end in \n or \r\n. */
static int scan_text(struct scanner *s) {
    bool in_line = false; /* the line already has text */
    for (int c = next(s); c >= 0;) {
        in_line = c != '\n';
        if (isdigit(c)) {
            if (take_id(s, &c)) return -1;
            continue;
        }
        const int after = next(s);
        if (c == '-' && isdigit(after))
            return fail(s->err,
                        "%s: line %lld: negative id; drop padding from the file, ids start at 0",
                        s->name, (long long)s->bags + 1);
        if (c == '\t') return found_tab(s);
        if (!memchr(" \r\n", c, 3) || (c == '\r' && after >= 0 && after != '\n'))
            return bad_character(s, c);
        if (c == '\n' && end_line(s)) return -1;
        c = after;
    }
    return in_line ? end_line(s) : 0;
}

/* Why the stream ended early, or 0 if it is complete. The functions that read return the bytes of a
 * cut stream without an error; only gzerror() reports it. */
static int stream_status(const struct scanner *s) {
    int code;
    const char *text = gzerror(s->file, &code);
    if (code == Z_OK) return 0;
    if (code == Z_ERRNO) return fail(s->err, "%s: cannot read: %s", s->name, strerror(errno));
    if (code == Z_BUF_ERROR)
        return fail(s->err, "%s: the compressed stream is cut short; copy the file again", s->name);
    return fail(s->err, "%s: the compressed stream is corrupt (zlib: %s); copy the file again",
                s->name, text);
}

/* Reports an error of the stream before an error of its text. */
static int scan(struct scanner *s) {
    s->available = memory_available();
    int failed = scan_text(s);
    if (s->too_large) return -1;
    while (gzgetc(s->file) >= 0) continue;
    return stream_status(s) || failed ? -1 : 0;
}

/* Passes over the members of a gzip file and zeros behind them (padding). False: something else follows, or not all of
 * a member. */
static bool members_only(FILE *file, z_stream *z, unsigned char *in, unsigned char *out) {
    bool begun = false, padded = false; /* a member; the zeros */
    size_t got;
    while ((got = fread(in, 1, PIECE, file)) > 0)
        for (z->next_in = in, z->avail_in = (uInt)got; z->avail_in;) {
            if (!begun && *z->next_in == 0) {
                padded = true;
                z->next_in++, z->avail_in--;
                continue;
            }
            z->next_out = out, z->avail_out = PIECE;
            const int status = padded ? Z_DATA_ERROR : inflate(z, Z_NO_FLUSH);
            if (status != Z_OK && status != Z_STREAM_END) return false;
            begun = status == Z_OK;
            if (!begun) inflateReset(z);
        }
    return !begun;
}

/* gzread() passes over everything behind the last member without a word. That may be most of a trace. */
static int require_no_tail(const char *path, struct error *err) {
    FILE *file = fopen(path, "rb");
    unsigned char *memory = malloc(2 * PIECE), magic[2] = {0};
    z_stream z = {0};
    int status = file && memory && inflateInit2(&z, 16 + MAX_WBITS) == Z_OK
                     ? 0
                     : fail(err, "%s: cannot read again", path);
    const bool compressed =
        status == 0 && fread(magic, 1, 2, file) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    if (status == 0) rewind(file);
    if (compressed && !members_only(file, &z, memory, memory + PIECE))
        status = fail(err,
                      "%s: bytes behind the compressed stream that belong to none; copy or "
                      "compress the file again",
                      path);
    inflateEnd(&z);
    free(memory);
    if (file) fclose(file);
    return status;
}

int trace_read_text(const char *path, struct trace *out, struct error *err) {
    int64_t size;
    int fd = regular_file_open(path, &size, err);
    if (fd < 0) return -1;
    struct scanner counts = {.name = path, .file = gzdopen(fd, "rb"), .err = err}, stores = counts;
    if (!counts.file) {
        close(fd);
        return fail(err, "%s: out of memory", path);
    }
    stores.into = out;
    gzbuffer(counts.file, PIECE);
    int failed = scan(&counts) || require_no_tail(path, err) || alloc_arrays(&counts, out);
    if (!failed) failed = gzrewind(counts.file) ? stream_status(&counts) : scan(&stores);
    if (!failed && (stores.lookups != counts.lookups || stores.bags != counts.bags))
        failed = changed(&stores);
    if (!failed) trace_count_rows(out);
    if (failed) trace_free(out);
    gzclose(counts.file);
    return failed ? -1 : 0;
}
