/* SPDX-License-Identifier: MIT
 *
 * embfuse lookup: rows of a frozen table, as a server looks them up, and how long that takes.
 */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/outputs.h"
#include "cli/step.h"
#include "extras/serving/latency.h"

enum { PASSES = 5 };

static const char more[] =
    "A table is the NAME of embfuse export, or FILE.npy. Without --offsets the rows of all ids "
    "are\n"
    "returned, [N][dim]; with --offsets bags of them are pooled, [bags][dim], as embfuse forward\n"
    "pools them; the output is float32, in PREFIX.output.npy.\n"
    "--stats times every bag as a request of its own, 5 times, on one thread, after a pass that\n"
    "brings the rows into memory; without --offsets an id is a request. p50 and p99 include\n"
    "the clock. The last figure is all bags in one call, on all threads.\n";

struct lookup {
    const char *table, *verify, *pooling, *padding, *out, *stats, *json, *threads_text;
    struct batch_files files;
    int64_t threads;
};

static int parse(int argc, char **argv, struct lookup *x, struct error *err) {
    const struct flag flags[] = {
        {"table", "NAME", "a frozen table", &x->table},
        {"ids", "FILE", "[N] row numbers", &x->files.ids},
        {"offsets", "FILE",
         "[bags + 1], from 0 to N: bag b is ids[offsets[b]] to ids[offsets[b+1]-1]",
         &x->files.offsets},
        {"lookup-weights", "FILE", "[N] per-sample weights", &x->files.lookup_weights},
        {"pooling", "sum|mean|none", "[sum; without --offsets none]", &x->pooling},
        {"padding", "ID", "id that does not count as a lookup [-1: none]", &x->padding},
        {"out", "PREFIX", "start of the name of the result; optional with --stats", &x->out},
        {"stats", NULL, "print bytes, time per lookup and lookups/s", &x->stats},
        {"json", NULL, "with --stats: as JSON", &x->json},
        {"verify", NULL, "compare the checksum of the rows first", &x->verify},
        {"threads", "T", "[all]", &x->threads_text},
    };
    const struct usage usage = {"lookup", NULL, more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    x->threads = omp_get_max_threads();
    if (flag_required("table", x->table, err) || flag_required("ids", x->files.ids, err) ||
        (!x->stats && flag_required("out", x->out, err)) ||
        flag_whole("threads", x->threads_text, 1, 4096, &x->threads, err))
        return -1;
    if (x->json && !x->stats) return fail(err, "--json goes with --stats");
    omp_set_num_threads((int)x->threads);
    return x->out ? outputs_check("--out", x->out, err) : 0;
}

static int read_batch(const struct lookup *x, const struct frozen *t, struct workload *w,
                      struct error *err) {
    const struct where pooling_flag = {"--pooling", 0}, padding_flag = {"--padding", 0};
    struct value pooling = key_preset(KEY_POOLING), padding = key_preset(KEY_PADDING);
    if (!x->files.offsets) pooling.number = POOL_NONE;
    if ((x->pooling && value_read(KEY_POOLING, x->pooling, pooling_flag, &pooling, err)) ||
        (x->padding && value_read(KEY_PADDING, x->padding, padding_flag, &padding, err)))
        return -1;
    if (!x->files.offsets && pooling.number != POOL_NONE)
        return fail(err, "--pooling %s needs --offsets, which say what a bag is", x->pooling);
    return batch_read_one(&x->files, t->rows, t->dim, (enum pooling)pooling.number,
                          (int64_t)padding.number, w, err);
}

static int write_output(const struct lookup *x, const struct batch *in, const void *output,
                        struct error *err) {
    struct outputs o = {0};
    int64_t shape[2];
    const int num_dims = batch_grad_shape(in, shape);
    if (batch_has_no_bags(x->files.offsets, in)) shape[0] = 0;
    int status = outputs_npy(&o, path_of(x->out, "output.npy").text, NPY_FLOAT32, num_dims, shape,
                             output, err);
    return outputs_end(&o, status, err);
}

static void print(const struct lookup *x, const struct frozen *t, const struct latency *l,
                  double together) {
    const char *type = frozen_type_name(t->type);
    const double bytes = (double)(t->rows * t->row_bytes);
    if (x->json) {
        printf(
            "{\"type\": \"%s\", \"rows\": %lld, \"dim\": %d, \"row_bytes\": %lld, \"bytes\": %.0f, "
            "\"requests\": %lld, \"lookups\": %lld, \"p50_ns\": %.9g, \"p99_ns\": %.9g, "
            "\"request_p50_ns\": %.9g, \"request_p99_ns\": %.9g, \"lookups_per_s\": %.9g, "
            "\"threads\": %lld, \"all_lookups_per_s\": %.9g}\n",
            type, (long long)t->rows, t->dim, (long long)t->row_bytes, bytes,
            (long long)l->requests, (long long)l->lookups, l->lookup_p50 * 1e9, l->lookup_p99 * 1e9,
            l->p50 * 1e9, l->p99 * 1e9, l->lookups_per_second, (long long)x->threads, together);
        return;
    }
    printf("%lld rows of %d as %s, %lld bytes each, %.0f in all\n", (long long)t->rows, t->dim,
           type, (long long)t->row_bytes, bytes);
    printf("%lld requests, %lld lookups: p50 %.1f, p99 %.1f ns per lookup; p50 %.2f, p99 %.2f us "
           "per request; %.3g lookups/s\n",
           (long long)l->requests, (long long)l->lookups, l->lookup_p50 * 1e9, l->lookup_p99 * 1e9,
           l->p50 * 1e6, l->p99 * 1e6, l->lookups_per_second);
    printf("all in one call on %lld threads: %.3g lookups/s\n", (long long)x->threads, together);
}

/* Each id is a request of its own, if nothing says what a bag is. */
static int measure(const struct lookup *x, const struct frozen *t, const struct batch *in,
                   void *output, struct error *err) {
    struct latency l;
    struct batch each = *in;
    struct feature feature = *in->features;
    int64_t *one_by_one = NULL;
    if (!x->files.offsets && in->lookups) {
        one_by_one = array_require(in->lookups + 1, sizeof *one_by_one, "offsets", err);
        if (!one_by_one) return -1;
        for (int64_t i = 0; i <= in->lookups; i++) one_by_one[i] = i;
        feature.bags = each.flat_bags = in->lookups;
        each.features = &feature;
        each.offsets = one_by_one;
    }
    int status = latency_measure(t, &each, PASSES, &l, err);
    const double begin = latency_now();
    for (int pass = 0; pass < PASSES; pass++) frozen_lookup(t, in, output, (int)x->threads);
    const double seconds = latency_now() - begin;
    if (status == 0) print(x, t, &l, (double)in->lookups * PASSES / seconds);
    free(one_by_one);
    return status;
}

static int run(int argc, char **argv, struct error *err) {
    struct lookup x = {0};
    struct frozen t;
    struct workload w;
    int status = parse(argc, argv, &x, err);
    if (status > 0) return EXIT_FINE;
    if (status < 0 ||
        frozen_open(x.table, x.verify ? FROZEN_LOOKUP | FROZEN_VERIFY : FROZEN_LOOKUP, &t, err))
        return EXIT_USAGE;
    status = read_batch(&x, &t, &w, err);
    if (status == 0) {
        const struct batch *in = &w.batches[0];
        /* The output lies as gradients would, so it takes their room: a lookup has none. */
        void *output = (void *)(uintptr_t)in->grad;
        frozen_lookup(&t, in, output, (int)x.threads);
        if (x.out) status = write_output(&x, in, output, err);
        if (status == 0 && x.stats) status = measure(&x, &t, in, output, err);
        workload_free(&w);
    }
    frozen_close(&t);
    return status ? EXIT_USAGE : EXIT_FINE;
}

const struct subcommand lookup_command = {"lookup", "look rows of a frozen table up, and time it",
                                          run};
