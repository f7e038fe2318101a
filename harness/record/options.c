/* SPDX-License-Identifier: MIT */
#include "harness/record/options.h"

#include <getopt.h>
#include <math.h>
#include <omp.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/environment.h"
#include "harness/measure/measure.h"

static const char standard_spec[] = "datasets/standard.spec",
                  template_spec[] = "datasets/zipf.spec", smoke_spec[] = "datasets/smoke.spec";

enum { BLANKS_MAX = 64 };

/* Every option takes a text; an empty one means "not given", as make passes unset variables. */
struct texts {
    const char *filter, *spec, *trace, *out, *alpha, *dims, *rows, *batch, *pooling, *rule, *seed,
        *threads, *reps, *ring, *modes, *place, *queue;
};

static const struct {
    const char *name, *help;
    size_t at;
} known[] = {
#define OPTION(name, help)                                                                         \
    { #name, help, offsetof(struct texts, name) }
    OPTION(filter, "extended regular expression on WORKLOAD/RULE/KERNEL/MODE"),
    OPTION(spec, "workload spec file"),
    OPTION(trace,
           "traces, instead of a spec: *.txt.gz, *.ids.npy; a,b,c are features of one input"),
    OPTION(out, "folder for bench.json"),
    OPTION(alpha, "exponents: list"),
    OPTION(dims, "floats per row: list"),
    OPTION(rows, "rows per table: list"),
    OPTION(batch, "bags per feature: list"),
    OPTION(pooling, "sum, mean, none, or a pooling factor: list"),
    OPTION(rule, "update rules: list, or all"),
    OPTION(seed, "of all random numbers"),
    OPTION(threads, "threads of every kernel"),
    OPTION(reps, "samples of every kernel, workload and cache mode"),
    OPTION(ring, "batches that cold samples go round"),
    OPTION(modes, "cold, warm: list"),
    OPTION(place, "kernels of the host, of the device, or all: host, device, all"),
    OPTION(queue, "minutes to queue for another bench on this machine; 10, and 0 does not"),
#undef OPTION
};
enum { KNOWN = sizeof known / sizeof *known };

static const char **text_of(struct texts *t, int i) {
    return (const char **)((char *)t + known[i].at);
}

static void help(void) {
    printf("usage: bench [--OPTION=VALUE ...]; run from the suite's root\n");
    for (int i = 0; i < KNOWN; i++) printf("  --%-9s %s\n", known[i].name, known[i].help);
    printf(
        "  --smoke     tiny workloads, all rules, one sample\n"
        "  --version   of what source, and built by what\n"
        "  -h, --help  this text\n"
        "exit status: 0 fine, 1 usage or environment, 2 wrong result, a kernel that crashed, or a\n"
        "             device that one made useless; then the other kernels were measured. 129,\n"
        "             130, 143: cut short by a signal (HUP, INT, TERM); what was measured until\n"
        "             then is written, as it is whenever a workload has ended\n");
}

static int parse_count(const char *name, const char *text, int least, int most, int otherwise,
                       int *out, struct error *err) {
    char *end;
    long value = *text ? strtol(text, &end, 10) : otherwise;
    if (*text && (*end || value < least || value > most))
        return fail(err, "%s: '%.40s' is not a number from %d to %d", name, text, least, most);
    *out = (int)value;
    return 0;
}

/* Calls use(word) for the blank-separated words of a list. */
static int each_word(const char *list,
                     int (*use)(const char *word, struct options *o, struct error *),
                     struct options *o, struct error *err) {
    char *copy = strdup(list), *rest = NULL;
    int status = copy ? 0 : fail(err, "out of memory");
    for (char *w = copy ? strtok_r(copy, " ,", &rest) : NULL; w && !status;
         w = strtok_r(NULL, " ,", &rest))
        status = use(w, o, err);
    free(copy);
    return status;
}

static int use_rule(const char *word, struct options *o, struct error *err) {
    enum rule_kind kind;
    if (strcmp(word, "all") == 0) {
        o->rules |= (1u << RULE_COUNT) - 1u;
        return 0;
    }
    if (rule_parse(word, &kind, err)) return -1;
    o->rules |= 1u << kind;
    return 0;
}

static int use_mode(const char *word, struct options *o, struct error *err) {
    bool cold = strcmp(word, "cold") == 0;
    if (!cold && strcmp(word, "warm") != 0)
        return fail(err, "MODES: unknown mode '%.40s'; known: cold warm", word);
    o->modes |= 1u << (cold ? MODE_COLD : MODE_WARM);
    return 0;
}

static int use_place(const char *word, struct options *o, struct error *err) {
    bool all = strcmp(word, "all") == 0, host = strcmp(word, "host") == 0;
    if (!all && !host && strcmp(word, "device") != 0)
        return fail(err, "PLACE: unknown place '%.40s'; known: host device all", word);
    if (all || host) o->places |= 1u << ON_HOST;
    if (all || !host) o->places |= 1u << ON_DEVICE;
    return 0;
}

static int check_filter(const char *filter, struct error *err) {
    regex_t pattern;
    int status = regcomp(&pattern, filter, REG_EXTENDED | REG_NOSUB);
    if (status) {
        char why[128];
        regerror(status, &pattern, why, sizeof why);
        return fail(err, "FILTER='%.100s': %s", filter, why);
    }
    regfree(&pattern);
    return 0;
}

static bool any_axis(const struct spec_overrides *a) {
    return *a->alpha || *a->dims || *a->rows || *a->batch || *a->pooling;
}

int options_parse(int argc, char **argv, struct options *out, struct error *err) {
    struct texts t;
    enum { HELP = KNOWN, SMOKE, VERSION };
    struct option longs[KNOWN + 4] = {{0}};
    for (int i = 0; i < KNOWN; i++) {
        *text_of(&t, i) = "";
        longs[i] = (struct option){known[i].name, required_argument, NULL, i};
    }
    longs[HELP] = (struct option){"help", no_argument, NULL, HELP};
    longs[SMOKE] = (struct option){"smoke", no_argument, NULL, SMOKE};
    longs[VERSION] = (struct option){"version", no_argument, NULL, VERSION};
    bool smoke = false;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (c == '?' && optopt >= KNOWN && optopt <= VERSION)
            return fail(err, "'%.80s': this option takes no value; see --help", word);
        if (c == '?') return fail(err, "unknown option '%.80s'; see --help", word);
        if (c == ':') return fail(err, "%.80s: its value is missing; see --help", word);
        if (c == 'h' || c == HELP) help();
        if (c == VERSION) printf("bench, %s\n", environment_build());
        if (c == 'h' || c == HELP || c == VERSION) return 1;
        smoke |= c == SMOKE;
        if (c < KNOWN) *text_of(&t, c) = optarg;
    }
    if (optind < argc) return fail(err, "unknown argument '%.80s'; see --help", argv[optind]);

    *out = (struct options){.filter = t.filter,
                            .spec = t.spec,
                            .trace = t.trace,
                            .out = *t.out ? t.out : "build/results",
                            .axes = {.alpha = t.alpha,
                                     .dims = t.dims,
                                     .rows = t.rows,
                                     .batch = t.batch,
                                     .pooling = t.pooling,
                                     .rule = "",
                                     .seed = t.seed},
                            .rule = t.rule,
                            .place = t.place};
    if (smoke) {
        if (!*t.spec) out->spec = smoke_spec;
        if (!*t.rule) t.rule = "all";
        if (!*t.reps) t.reps = "1";
    }
    if (*t.trace && (*t.alpha || *t.rows))
        return fail(err, "ALPHA and ROWS do not apply to a trace: its ids are what they are");
    if (!*out->spec) out->spec = any_axis(&out->axes) || *t.trace ? template_spec : standard_spec;
    if (check_filter(t.filter, err) || each_word(t.rule, use_rule, out, err) ||
        each_word(*t.modes ? t.modes : "cold warm", use_mode, out, err) ||
        each_word(*t.place ? t.place : "all", use_place, out, err))
        return -1;
    if (parse_count("THREADS", t.threads, 1, 4096, omp_get_max_threads(), &out->threads, err) ||
        parse_count("REPS", t.reps, 1, 1000, 5, &out->reps, err) ||
        parse_count("RING", t.ring, 1, RING_MAX, 3, &out->ring, err) ||
        parse_count("QUEUE", t.queue, 0, 100000, 10, &out->queue, err))
        return -1;
    omp_set_num_threads(out->threads);
    return 0;
}

void options_describe(const struct options *o,
                      void (*add)(void *ctx, const char *key, const char *value), void *ctx) {
    char threads[16], reps[16], ring[16];
    snprintf(threads, sizeof threads, "%d", o->threads);
    snprintf(reps, sizeof reps, "%d", o->reps);
    snprintf(ring, sizeof ring, "%d", o->ring);
    const struct {
        const char *key, *value;
    } all[] = {{"FILTER", o->filter},  {"SPEC", o->spec},        {"TRACE", o->trace},
               {"OUT", o->out},        {"ALPHA", o->axes.alpha}, {"DIMS", o->axes.dims},
               {"ROWS", o->axes.rows}, {"BATCH", o->axes.batch}, {"POOLING", o->axes.pooling},
               {"RULE", o->rule},      {"PLACE", o->place},      {"SEED", o->axes.seed},
               {"THREADS", threads},   {"REPS", reps},           {"RING", ring}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char key[32];
        snprintf(key, sizeof key, "emb_var_%s", all[i].key);
        add(ctx, key, all[i].value);
    }
}

int plan_read(const struct options *o, struct plan *out, struct error *err) {
    *out = (struct plan){.options = o};
    if (spec_read(o->spec, &o->axes, &out->specs, err)) return -1;
    out->count = out->specs.count;
    if (!*o->trace) return 0;
    out->text = strdup(o->trace);
    out->traces = calloc(strlen(o->trace) + 1, sizeof *out->traces);
    if (!out->text || !out->traces) {
        plan_free(out);
        return fail(err, "out of memory");
    }
    int traces = 0;
    char *rest = NULL;
    for (char *w = strtok_r(out->text, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        out->traces[traces++] = w;
    out->count *= traces;
    return 0;
}

static const struct spec *spec_of(const struct plan *p, int i) {
    return &p->specs.specs[i % p->specs.count];
}

const char *plan_name(const struct plan *p, int i, char name[SPEC_NAME_MAX]) {
    if (p->traces)
        workload_trace_name(p->traces[i / p->specs.count], spec_of(p, i), name);
    else
        snprintf(name, SPEC_NAME_MAX, "%s", spec_of(p, i)->name);
    return name;
}

double plan_alpha(const struct plan *p, int i) {
    enum ids_kind ids = spec_of(p, i)->ids;
    return !p->traces && (ids == IDS_ZIPF || ids == IDS_POWERLAW) ? spec_of(p, i)->alpha : NAN;
}

unsigned plan_rules(const struct plan *p, int i) {
    return p->options->rules ? p->options->rules : 1u << spec_of(p, i)->rule;
}

static int64_t plan_table_bytes(const struct spec *spec, enum rule_kind rule) {
    int64_t bytes = 0;
    for (int t = 0; t < spec->num_tables; t++) {
        struct table_shape shape = spec_table(spec, t);
        shape.rule = rule;
        bytes += tables_bytes(&shape, 1);
    }
    return bytes;
}

/* Bytes of the ring's batches, and of their indexes at their peak, during the build. */
static int64_t plan_batch_bytes(const struct plan *p, const struct spec *spec, int64_t *index) {
    int64_t bytes = workload_bytes(spec, p->options->ring);
    struct batch all = {.lookups = workload_lookups(spec, p->options->ring)};
    *index = bytes < (int64_t)1 << 55 ? row_index_bytes(&all) : 0; /* no sum overflows */
    return bytes;
}

int plan_tables_fit(const struct plan *p, int i, enum rule_kind rule, enum backend place,
                    struct error *err) {
    const struct spec *spec = spec_of(p, i);
    if (p->traces) return 0; /* only reading the trace shows its rows */
    int64_t index, batches = plan_batch_bytes(p, spec, &index);
    int64_t tables = plan_table_bytes(spec, rule);
    int64_t free_memory = place == ON_DEVICE ? device_facts().free_memory : 0;
    if (place == ON_DEVICE && tables > free_memory)
        return fail(err, "needs %.1f GiB of device memory for tables and state, %.1f GiB are free",
                    (double)tables / (1 << 30), (double)free_memory / (1 << 30));
    if (place == ON_DEVICE) return 0;
    return memory_require(tables + batches + index / 2, "tables, optimizer state and batches", err);
}

int plan_make(const struct plan *p, int i, enum rule_kind rule, struct workload *out,
              struct error *err) {
    struct spec spec = *spec_of(p, i);
    const struct options *o = p->options;
    spec.rule = rule;
    if (p->traces)
        return workload_from_trace(p->traces[i / p->specs.count], &spec,
                                   *o->axes.batch ? spec.batch : 0, o->ring, GRAD_EXACT, out, err);
    int64_t index, batches = plan_batch_bytes(p, &spec, &index);
    if (memory_require(batches + index, "batches", err)) return -1;
    return workload_generate(&spec, o->ring, GRAD_EXACT, out, err);
}

void plan_free(struct plan *p) {
    spec_list_free(&p->specs);
    free(p->traces);
    free(p->text);
    *p = (struct plan){0};
}
