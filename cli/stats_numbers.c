/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json.h"
#include "cli/stats.h"

static int most_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static int64_t sum_of(const int64_t *x, int64_t count) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i];
    return sum;
}

static int count_hits(const struct row_index *x, struct stats *s, struct error *err) {
    s->hits = malloc((size_t)(x->rows + 1) * sizeof *s->hits);
    if (!s->hits) return fail(err, "out of memory");
    for (int64_t r = 0; r < x->rows; r++) s->hits[r] = x->run[r + 1].first - x->run[r].first;
    qsort(s->hits, (size_t)x->rows, sizeof *s->hits, most_first);
    s->top_10 = sum_of(s->hits, x->rows < 10 ? x->rows : 10);
    s->top_percent = sum_of(s->hits, (x->rows + 99) / 100);
    return 0;
}

/* Counts rows of the next batch that this one has, too. Both lists are sorted by table and row. */
static void compare_batches(const struct row_index *now, const struct row_index *next,
                            struct stats *s) {
    s->has_next = true;
    s->next_rows = next->rows;
    s->next_lookups = next->lookups;
    for (int64_t i = 0, j = 0; i < now->rows && j < next->rows;) {
        const struct row_run *a = &now->run[i], *b = &next->run[j];
        bool same = a->table == b->table && a->row == b->row;
        bool first = a->table != b->table ? a->table < b->table : a->row < b->row;
        if (same) s->kept_rows++, s->kept_lookups += b[1].first - b->first;
        i += same || first;
        j += !first;
    }
}

int stats_make(const struct workload *w, struct stats *out, struct error *err) {
    const struct batch *in = &w->batches[0];
    *out = (struct stats){.all_ids = in->lookups};
    for (int32_t t = 0; t < in->num_tables; t++) out->table_rows += in->tables[t].rows;
    struct row_index now = row_index_build(in);
    out->ids = id_stats(in, &now);
    int status = count_hits(&now, out, err);
    if (w->ring > 1) {
        struct row_index next = row_index_build(&w->batches[1]);
        compare_batches(&now, &next, out);
        row_index_free(&next);
    }
    row_index_free(&now);
    return status;
}

void stats_free(struct stats *s) {
    free(s->hits);
    *s = (struct stats){0};
}

/* One line of the report: a count, and the whole that it is a share of. */
struct line {
    const char *key, *label;
    int64_t count, whole; /* whole < 0: no share is printed */
    const char *of;
};

enum { LINES = 14 };

static int fill_lines(const struct stats *s, struct line lines[LINES]) {
    const struct id_stats *x = &s->ids;
    const struct line all[LINES] = {
        {"table_rows", "rows of all tables", s->table_rows, -1, ""},
        {"ids", "ids", s->all_ids, -1, ""},
        {"padding", "padding", x->padding, s->all_ids, "of the ids"},
        {"lookups", "lookups", x->lookups, s->all_ids, "of the ids"},
        {"distinct", "distinct rows", x->distinct, x->lookups, "of the lookups"},
        {"hottest", "hottest row", x->hottest, x->lookups, "of the lookups"},
        {"top_10", "10 hottest rows", s->top_10, x->lookups, "of the lookups"},
        {"top_1_percent", "hottest 1 % of the distinct rows", s->top_percent, x->lookups,
         "of the lookups"},
        {"in_bag_duplicates", "row already in the bag", x->in_bag_duplicates, x->lookups,
         "of the lookups"},
        {"bags", "bags", x->bags, -1, ""},
        {"empty_bags", "empty bags", x->empty_bags, x->bags, "of the bags"},
        {"longest_bag", "longest bag", x->longest_bag, -1, ""},
        {"next_rows_kept", "rows of the next batch in this one", s->kept_rows, s->next_rows,
         "of its distinct rows"},
        {"next_lookups_kept", "lookups of the next batch on them", s->kept_lookups, s->next_lookups,
         "of its lookups"},
    };
    memcpy(lines, all, sizeof all);
    return s->has_next ? LINES : LINES - 2;
}

static double share(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

/* Least and most lookups of a row in the bin; *most is 0 for the last bin, which is open. */
static void bin_range(int bin, int64_t *least, int64_t *most) {
    *least = bin ? ((int64_t)1 << (bin - 1)) + 1 : 1;
    *most = bin < RUN_BINS - 1 ? (int64_t)1 << bin : 0;
}

enum { BIN_TEXT_MAX = 48 };

/* "3-4", or "> 32768" for the last bin. */
static const char *run_bin_text(int bin, char text[BIN_TEXT_MAX]) {
    int64_t least, most;
    bin_range(bin, &least, &most);
    if (!most)
        snprintf(text, BIN_TEXT_MAX, "> %" PRId64, least - 1);
    else if (least == most)
        snprintf(text, BIN_TEXT_MAX, "%" PRId64, least);
    else
        snprintf(text, BIN_TEXT_MAX, "%" PRId64 "-%" PRId64, least, most);
    return text;
}

void stats_print_text(const struct workload *w, const struct stats *s) {
    const struct id_stats *x = &s->ids;
    struct line lines[LINES];
    int count = fill_lines(s, lines), last = RUN_BINS - 1;
    printf("%s\n  %s\n  %-34s %016" PRIx64 "\n", w->name, w->text, "fingerprint", x->fingerprint);
    for (int i = 0; i < count; i++) {
        printf("  %-34s %16" PRId64, lines[i].label, lines[i].count);
        if (lines[i].whole >= 0)
            printf("   %6.2f %% %s", 100 * share(lines[i].count, lines[i].whole), lines[i].of);
        printf("\n");
    }
    printf("  %-34s %16.2f\n", "mean length of a bag", share(s->all_ids, x->bags));
    while (last > 0 && x->run_rows[last] == 0) last--;
    printf("  %-16s %16s %9s %16s %9s\n", "lookups of a row", "rows", "share", "lookups", "share");
    for (int b = 0; b <= last; b++) {
        char text[BIN_TEXT_MAX];
        printf("  %-16s %16" PRId64 " %7.2f %% %16" PRId64 " %7.2f %%\n", run_bin_text(b, text),
               x->run_rows[b], 100 * share(x->run_rows[b], x->distinct), x->run_lookups[b],
               100 * share(x->run_lookups[b], x->lookups));
    }
}

void stats_print_json(const struct workload *w, const struct stats *s) {
    const struct id_stats *x = &s->ids;
    struct line lines[LINES];
    int count = fill_lines(s, lines);
    printf("{");
    json_text("name", w->name, ", ");
    json_text("text", w->text, ",\n  ");
    printf("\"fingerprint\": \"%016" PRIx64 "\"", x->fingerprint);
    for (int i = 0; i < count; i++) {
        printf(",\n  \"%s\": %" PRId64, lines[i].key, lines[i].count);
        if (lines[i].whole >= 0)
            printf(", \"%s_share\": %.6g", lines[i].key, share(lines[i].count, lines[i].whole));
    }
    printf(",\n  \"mean_bag\": %.6g,\n  \"runs\": [", share(s->all_ids, x->bags));
    for (int b = 0; b < RUN_BINS; b++) {
        int64_t least, most;
        bin_range(b, &least, &most);
        printf("%s\n    {\"least\": %" PRId64 ", \"most\": ", b ? "," : "", least);
        printf(most ? "%" PRId64 : "null", most);
        printf(", \"rows\": %" PRId64 ", \"lookups\": %" PRId64 "}", x->run_rows[b],
               x->run_lookups[b]);
    }
    printf("]}");
}
