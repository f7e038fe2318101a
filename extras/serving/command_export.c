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
#include "extras/library/frozen/frozen.h"

static const char more[] =
    "A table is PREFIX.weight.npy or another .npy of [rows][dim] (float32, float16, bf16 as\n"
    "uint16, fp8 as uint8), or the NAME of a frozen table. raw writes NAME.rows, row after row,\n"
    "and NAME.table, a text with their number, dim, type and checksum; npy writes NAME.npy.\n"
    "int8: a row is dim codes (uint8), then scale and bias (fp32), as FBGEMM's fused 8-bit "
    "rowwise\n"
    "tables: element = scale * code + bias, within scale / 2 of the weight. All elements must be\n"
    "finite and in the range of the type; rows that lose more than a tenth of their length are\n"
    "counted in a warning.\n";

struct export {
    const char *weight, *type_text, *out, *format, *threads_text, *json;
    int type;
    bool npy;
    int64_t threads;
};

static int parse(int argc, char **argv, struct export *x, struct error *err) {
    const struct flag flags[] = {
        {"weight", "FILE", "the table: FILE.npy, or the NAME of a frozen table", &x->weight},
        {"type", "TYPE", "fp32, bf16, fp16, fp8 or int8", &x->type_text},
        {"out", "NAME", "start of the names of the files", &x->out},
        {"format", "raw|npy", "int8 is raw only [raw]", &x->format},
        {"threads", "T", "[all]", &x->threads_text},
        {"json", NULL, "the same numbers as JSON", &x->json},
    };
    const struct usage usage = {"export", NULL, more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    x->threads = omp_get_max_threads();
    if (flag_required("weight", x->weight, err) || flag_required("type", x->type_text, err) ||
        flag_required("out", x->out, err) ||
        flag_whole("threads", x->threads_text, 1, 4096, &x->threads, err))
        return -1;
    x->npy = x->format && strcmp(x->format, "npy") == 0;
    if (x->format && !x->npy && strcmp(x->format, "raw") != 0)
        return fail(err, "--format is raw or npy, not '%.40s'", x->format);
    x->type = frozen_type_find(x->type_text, err);
    if (x->type < 0) return -1;
    if (x->npy && x->type == FROZEN_INT8)
        return fail(err, "--format npy: has no rows with a scale; int8 is --format raw");
    omp_set_num_threads((int)x->threads);
    return outputs_check("--out", x->out, err);
}

static void warn(const struct export *x, const struct frozen *made, const struct frozen_error *e) {
    char weight[PATH_MAX];
    escape_controls(x->weight, weight, sizeof weight);
    if (e->rough_rows)
        fprintf(stderr,
                "embfuse: warning: %s: %lld of %lld rows lose more than a tenth as %s, and %lld of "
                "them become 0: take %s, or multiply the weights by a power of two and divide what "
                "is looked up\n",
                weight, (long long)e->rough_rows, (long long)made->rows,
                frozen_type_name(made->type), (long long)e->zeroed_rows,
                made->type == FP8 ? "int8 or bf16" : "bf16 or fp32");
}

static void print(const struct export *x, const struct frozen *made, const struct frozen_error *e) {
    const char *type = frozen_type_name(made->type);
    const double bytes = (double)(made->rows * made->row_bytes);
    if (x->json) {
        printf(
            "{\"type\": \"%s\", \"rows\": %lld, \"dim\": %d, \"row_bytes\": %lld, \"bytes\": %.0f, "
            "\"largest_error\": %.9g, \"of_bound\": %.9g, \"relative_rms\": %.9g, "
            "\"row_median\": %.3g, \"row_largest\": %.9g, \"nonzero_rows\": %lld, "
            "\"zeroed_rows\": %lld, \"rough_rows\": %lld}\n",
            type, (long long)made->rows, made->dim, (long long)made->row_bytes, bytes, e->worst,
            e->worst_bound, e->relative_rms, e->row_median, e->row_worst,
            (long long)e->nonzero_rows, (long long)e->zeroed_rows, (long long)e->rough_rows);
        return;
    }
    char out[PATH_MAX];
    escape_controls(x->out, out, sizeof out);
    printf(x->npy ? "%s.npy: " : "%s.rows and .table: ", out);
    printf("%lld rows of %d as %s, %lld bytes each, %.0f in all (fp32: %.0f)\n",
           (long long)made->rows, made->dim, type, (long long)made->row_bytes, bytes,
           (double)(made->rows * frozen_row_bytes(FP32, made->dim)));
    printf("read back: largest error %.3g, %.3g of its bound; relative rms error %.3g, of a row "
           "%.2g (median) to %.3g; %lld of %lld nonzero rows become 0\n",
           e->worst, e->worst_bound, e->relative_rms, e->row_median, e->row_worst,
           (long long)e->zeroed_rows, (long long)e->nonzero_rows);
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
    struct frozen_error e;
    int status = write_parts(x, from, &o, &made, err);
    if (status == 0) {
        e = frozen_compare(from, &made);
        if (e.worst_bound > 1)
            status =
                fail(err, "%s: a row that was read back is wrong, by %.3g; nothing was written",
                     x->out, e.worst)
                    ? 1
                    : 0;
    }
    status = outputs_end(&o, status, err);
    if (status == 0) print(x, &made, &e);
    if (status == 0) warn(x, &made, &e);
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
