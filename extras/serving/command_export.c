/* SPDX-License-Identifier: MIT
 *
 * embfuse export: freezes the weights of a table for serving, in a type of your choice. It reads the
 * written rows back and compares them before they get their names.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/outputs.h"
#include "extras/serving/recall.h"

static const char more[] =
    "A table is PREFIX.weight.npy or another .npy of [rows][dim] (float32, float16, bf16 as\n"
    "uint16, fp8 as uint8), or the NAME of a frozen table. raw writes NAME.rows, row after row,\n"
    "and NAME.table, a text with their number, dim, type and checksum; npy writes NAME.npy.\n"
    "int8: a row is dim codes (uint8), then scale and bias (fp32), as FBGEMM's fused 8-bit "
    "rowwise\n"
    "tables: element = scale * code + bias, within scale / 2 of the weight. All elements must be\n"
    "finite and in the range of the type; rows that lose more than a tenth of their length are\n"
    "counted in a warning. --recall tells which share of the K nearest rows of a row stays the\n"
    "same, for N rows of the table, by inner product and by cosine.\n";

struct export {
    const char *weight, *type_text, *out, *format, *recall_text, *neighbours_text, *threads_text,
        *json;
    int type;
    bool npy;
    int64_t queries, neighbours, threads;
};

/* What is printed. */
struct figures {
    struct frozen_error error;
    double recall[METRICS];
};

static int parse(int argc, char **argv, struct export *x, struct error *err) {
    const struct flag flags[] = {
        {"weight", "FILE", "the table: FILE.npy, or the NAME of a frozen table", &x->weight},
        {"type", "TYPE", "fp32, bf16, fp16, fp8 or int8", &x->type_text},
        {"out", "NAME", "start of the names of the files", &x->out},
        {"format", "raw|npy", "int8 is raw only [raw]", &x->format},
        {"recall", "N", "recall of nearest neighbours for N rows [0]", &x->recall_text},
        {"neighbours", "K", "with --recall [10]", &x->neighbours_text},
        {"threads", "T", "[all]", &x->threads_text},
        {"json", NULL, "the same numbers as JSON", &x->json},
    };
    const struct usage usage = {"export", NULL, more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    x->queries = 0, x->neighbours = 10, x->threads = omp_get_max_threads();
    if (flag_required("weight", x->weight, err) || flag_required("type", x->type_text, err) ||
        flag_required("out", x->out, err) ||
        flag_whole("recall", x->recall_text, 1, 1000000, &x->queries, err) ||
        flag_whole("neighbours", x->neighbours_text, 1, NEIGHBOURS_MAX, &x->neighbours, err) ||
        flag_whole("threads", x->threads_text, 1, 4096, &x->threads, err))
        return -1;
    x->npy = x->format && strcmp(x->format, "npy") == 0;
    if (x->format && !x->npy && strcmp(x->format, "raw") != 0)
        return fail(err, "--format is raw or npy, not '%.40s'", x->format);
    if (x->neighbours_text && !x->queries) return fail(err, "--neighbours goes with --recall");
    x->type = frozen_type_find(x->type_text, err);
    if (x->type < 0) return -1;
    if (x->npy && x->type == FROZEN_INT8)
        return fail(err, "--format npy: has no rows with a scale; int8 is --format raw");
    omp_set_num_threads((int)x->threads);
    return outputs_check("--out", x->out, err);
}

static int measure_recall(const struct export *x, const struct frozen *from,
                          const struct frozen *made, struct figures *f, struct error *err) {
    if (x->queries == 0) return 0;
    if (x->neighbours >= from->rows)
        return fail(err, "--neighbours %lld: the table has %lld rows; ask for fewer",
                    (long long)x->neighbours, (long long)from->rows);
    if (x->queries > from->rows)
        return fail(err, "--recall %lld: the table has %lld rows; ask for fewer",
                    (long long)x->queries, (long long)from->rows);
    int64_t *query = malloc((size_t)x->queries * sizeof *query);
    if (!query) return fail(err, "out of memory");
    recall_sample(from->rows, x->queries, 1, query);
    int status = 0;
    for (int m = 0; m < METRICS && status == 0; m++)
        status = recall_at(from, made, query, x->queries, (int)x->neighbours, (enum metric)m,
                           &f->recall[m], err);
    free(query);
    return status;
}

static void warn(const struct export *x, const struct frozen *made, const struct frozen_error *e) {
    char weight[PATH_MAX];
    escape_controls(x->weight, weight, sizeof weight);
    if (e->rough_rows)
        fprintf(stderr,
                "embfuse: warning: %s: %lld of %lld rows lose more than a tenth as %s (the table: "
                "%.2g): take %s, or make the weights larger\n",
                weight, (long long)e->rough_rows, (long long)made->rows,
                frozen_type_name(made->type), e->relative_rms,
                made->type == FP8 ? "int8 or bf16" : "bf16 or fp32");
}

static void print(const struct export *x, const struct frozen *made, const struct figures *f) {
    const char *type = frozen_type_name(made->type);
    const double bytes = (double)(made->rows * made->row_bytes);
    if (x->json) {
        printf(
            "{\"type\": \"%s\", \"rows\": %lld, \"dim\": %d, \"row_bytes\": %lld, \"bytes\": %.0f, "
            "\"largest_error\": %.9g, \"of_bound\": %.9g, \"relative_rms\": %.9g, "
            "\"rough_rows\": %lld",
            type, (long long)made->rows, made->dim, (long long)made->row_bytes, bytes,
            f->error.worst, f->error.worst_bound, f->error.relative_rms,
            (long long)f->error.rough_rows);
        if (x->queries)
            printf(", \"queries\": %lld, \"neighbours\": %lld, \"recall_inner_product\": %.9g, "
                   "\"recall_cosine\": %.9g",
                   (long long)x->queries, (long long)x->neighbours, f->recall[METRIC_INNER_PRODUCT],
                   f->recall[METRIC_COSINE]);
        printf("}\n");
        return;
    }
    char out[PATH_MAX];
    escape_controls(x->out, out, sizeof out);
    printf(x->npy ? "%s.npy: " : "%s.rows and .table: ", out);
    printf("%lld rows of %d as %s, %lld bytes each, %.0f in all (fp32: %.0f)\n",
           (long long)made->rows, made->dim, type, (long long)made->row_bytes, bytes,
           (double)(made->rows * frozen_row_bytes(FP32, made->dim)));
    printf("read back: largest error %.3g, %.3g of its bound; relative rms error %.3g\n",
           f->error.worst, f->error.worst_bound, f->error.relative_rms);
    if (x->queries)
        printf("recall@%lld of %lld rows: %.4f by inner product, %.4f by cosine\n",
               (long long)x->neighbours, (long long)x->queries, f->recall[METRIC_INNER_PRODUCT],
               f->recall[METRIC_COSINE]);
}

/* Writes the files beside their names, and maps them. `made` must be closed if this returns 0. */
static int write_parts(const struct export *x, const struct frozen *from, struct outputs *o,
                       struct frozen *made, struct error *err) {
    const char *rows = outputs_add(o, path_of(x->out, x->npy ? "npy" : "rows").text, err);
    /* The text last: it gets its name after the rows. */
    const char *text = rows && !x->npy ? outputs_add(o, path_of(x->out, "table").text, err) : NULL;
    struct error why;
    if (!rows || (!x->npy && !text)) return -1;
    if (frozen_write(from, x->type, rows, text, &why))
        return fail(err, "%s: %.400s", x->weight, why.text);
    return x->npy ? frozen_open_npy(rows, FROZEN_SCAN, made, err)
                  : frozen_open_raw(rows, text, FROZEN_SCAN | FROZEN_VERIFY, made, err);
}

/* 0: fine, -1: could not run, 1: wrong. */
static int export(const struct export *x, const struct frozen *from, struct error *err) {
    struct outputs o = {0};
    struct frozen made = {0};
    struct figures f;
    int status = write_parts(x, from, &o, &made, err);
    if (status == 0) {
        f.error = frozen_compare(from, &made);
        if (f.error.worst_bound > 1)
            status =
                fail(err, "%s: a row that was read back is wrong, by %.3g; nothing was written",
                     x->out, f.error.worst)
                    ? 1
                    : 0;
    }
    if (status == 0) status = measure_recall(x, from, &made, &f, err);
    status = outputs_end(&o, status, err);
    if (status == 0) print(x, &made, &f);
    if (status == 0) warn(x, &made, &f.error);
    frozen_close(&made);
    return status;
}

static int run(int argc, char **argv, struct error *err) {
    struct export x = {0};
    struct frozen from;
    int status = parse(argc, argv, &x, err);
    if (status > 0) return EXIT_FINE;
    if (status < 0 || frozen_open(x.weight, FROZEN_SCAN, &from, err)) return EXIT_USAGE;
    status = export(&x, &from, err);
    frozen_close(&from);
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}

const struct subcommand export_command = {
    "export", "freeze the weights of a table for serving, in a type of your choice", run};
