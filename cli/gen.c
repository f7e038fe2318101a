/* SPDX-License-Identifier: MIT
 *
 * embfuse gen: writes one batch of a workload as .npy files, described by PREFIX.batch.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/description.h"
#include "cli/flags.h"
#include "cli/table_files.h"
#include "harness/workload/regular_file.h"

struct gen {
    const char *file, *text, *out, *workload, *number, *mode, *initial;
    int64_t batch;
    enum grad_mode grad_mode;
};

static int parse(int argc, char **argv, struct gen *g, struct error *err) {
    const struct flag flags[] = {
        {"spec-text", "TEXT", "the text of a spec instead of a file; ';' ends a line", &g->text},
        {"workload", "NAME", "which workload, if the spec has several", &g->workload},
        {"batch-number", "K", "number of the batch in the stream, 0 to 7 [0]", &g->number},
        {"mode", "exact|real", "gradients: exact sums in any order, or uniform [exact]", &g->mode},
        {"initial-tables", NULL, "write weights and states, too", &g->initial},
        {"out", "PREFIX", "start of all file names", &g->out},
    };
    static const char more[] =
        "Writes PREFIX.batch (tables and features), .ids.npy, .offsets.npy [all bags + 1],\n"
        ".grad.npy ([bags][sum of dims]; pooling none: [ids][dim], or flat if dims differ), and\n"
        ".lookup_weights.npy (per-sample weights, if any), .winners.npy (drawn, for pooling max;\n"
        "those of a forward: embfuse forward --winners). --initial-tables adds .weight.npy,\n"
        ".state.K.npy and .row_state.npy (several tables: .weight.T.npy, .state.T.K.npy,\n"
        ".row_state.T.npy), and .tables with the rule of each table. Replaces existing files.\n";
    struct usage usage = {"gen", "SPECFILE", more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, &g->file, err);
    if (status) return status;
    if (!g->file == !g->text) return fail(err, "gen: give a spec file or --spec-text");
    if (flag_required("out", g->out, err)) return -1;
    g->batch = 0;
    if (flag_whole("batch-number", g->number, 0, RING_MAX - 1, &g->batch, err)) return -1;
    bool real = g->mode && strcmp(g->mode, "real") == 0;
    if (g->mode && !real && strcmp(g->mode, "exact") != 0)
        return fail(err, "--mode is exact or real, not '%.40s'", g->mode);
    g->grad_mode = real ? GRAD_REAL : GRAD_EXACT;
    return 0;
}

/* A semicolon in the text ends a line. */
static int parse_text(const char *text, struct spec_list *list, struct error *err) {
    char *lines = strdup(text);
    if (!lines) return fail(err, "out of memory");
    for (char *c = lines; *c; c++)
        if (*c == ';') *c = '\n';
    int status = spec_parse("--spec-text", lines, strlen(lines), NULL, list, err);
    free(lines);
    return status;
}

static int make(const struct gen *g, struct workload *out, struct error *err) {
    struct spec_list list;
    if (g->text ? parse_text(g->text, &list, err) : spec_read(g->file, NULL, &list, err)) return -1;
    const struct spec *spec = spec_pick(&list, g->file ? g->file : "--spec-text", g->workload, err);
    int status = spec ? workload_generate(spec, (int)g->batch + 1, g->grad_mode, out, err) : -1;
    spec_list_free(&list);
    return status;
}

static int write_npy(struct outputs *o, const struct gen *g, const char *what, enum npy_type type,
                     int num_dims, const int64_t *shape, const void *data, struct error *err) {
    return outputs_npy(o, path_of(g->out, what).text, type, num_dims, shape, data, err);
}

static int write_batch(struct outputs *o, const struct gen *g, const struct batch *in,
                       struct error *err) {
    int64_t offsets = in->flat_bags + 1, shape[2];
    const int num_dims = batch_grad_shape(in, shape);
    enum npy_type type = in->id_type == ID_INT32 ? NPY_INT32 : NPY_INT64;
    if (write_npy(o, g, "ids.npy", type, 1, &in->lookups, in->ids, err) ||
        write_npy(o, g, "offsets.npy", NPY_INT64, 1, &offsets, in->offsets, err) ||
        write_npy(o, g, "grad.npy", npy_type_of(in->grad_type), num_dims, shape, in->grad, err) ||
        (in->winners &&
         write_npy(o, g, "winners.npy", NPY_INT32, num_dims, shape, in->winners, err)))
        return -1;
    if (!in->lookup_weights) return 0;
    return write_npy(o, g, "lookup_weights.npy", NPY_FLOAT32, 1, &in->lookups, in->lookup_weights,
                     err);
}

static int write_description(struct outputs *o, const struct gen *g, const struct workload *w,
                             struct error *err) {
    const struct path path = path_of(g->out, "batch");
    FILE *file = outputs_text(o, path.text, err);
    if (!file) return -1;
    description_write(file, w, (int)g->batch);
    return file_end(file, path.text, err);
}

static int write_tables(struct outputs *o, const struct gen *g, const struct workload *w,
                        struct error *err) {
    struct table_set tables;
    if (tables_create(&tables, w->tables, w->num_tables, w->seed, err)) return -1;
    int status = table_files_write(o, g->out, &tables, NULL, 0, err);
    tables_free(&tables);
    return status;
}

static int write_all(const struct gen *g, const struct workload *w, struct error *err) {
    struct outputs o = {0};
    int status = write_batch(&o, g, &w->batches[g->batch], err);
    if (status == 0 && g->initial) status = write_tables(&o, g, w, err);
    if (status == 0) status = write_description(&o, g, w, err);
    return outputs_end(&o, status, err);
}

int gen_command(int argc, char **argv, struct error *err) {
    struct gen g;
    struct workload w;
    int status = parse(argc, argv, &g, err);
    if (status > 0) return EXIT_FINE;
    if (status < 0 || outputs_check("--out", g.out, err) || make(&g, &w, err)) return EXIT_USAGE;
    status = write_all(&g, &w, err);
    const struct batch *in = &w.batches[g.batch];
    char out[PATH_MAX];
    escape_controls(g.out, out, sizeof out);
    if (status == 0)
        printf("%s.batch: %s, batch %lld: %lld ids in %lld bags of %d features\n", out, w.name,
               (long long)g.batch, (long long)in->lookups, (long long)in->flat_bags,
               in->num_features);
    workload_free(&w);
    return status ? EXIT_USAGE : EXIT_FINE;
}
