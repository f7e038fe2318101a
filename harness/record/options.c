/* SPDX-License-Identifier: MIT */
#include "harness/record/options.h"

#include <ctype.h>
#include <getopt.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/environment.h"
#include "harness/measure/measure.h"

static const struct known {
    const char *name, *help;
    size_t at;       /* offset of a member of struct options: a text if most is 0, otherwise */
    int least, most; /* an int in this range */
} known[] = {
#define TEXT(field)  offsetof(struct options, field), 0, 0
#define COUNT(field) offsetof(struct options, field)
    {"filter", "extended regular expression on WORKLOAD/RULE/KERNEL/MODE", TEXT(filter)},
    {"spec", "workload spec file", TEXT(spec)},
    {"trace", "traces, instead of a spec: *.txt.gz, *.ids.npy; a,b,c are features of one input",
     TEXT(trace)},
    {"out", "folder for bench.json", TEXT(out)},
    {"alpha", "exponents: list", TEXT(axes.alpha)},
    {"dims", "floats per row: list", TEXT(axes.dims)},
    {"rows", "rows per table: list", TEXT(axes.rows)},
    {"batch", "bags per feature, B+C+...: of each: list", TEXT(axes.batch)},
    {"pooling", "sum, mean, none, max, or a pooling factor: list", TEXT(axes.pooling)},
    {"rule",
     "update rules, or forward (the lookup), gradient (rows, values), weight_grad: list, or all",
     TEXT(rule)},
    {"seed", "of all random numbers", TEXT(axes.seed)},
    {"threads", "threads of every kernel", COUNT(threads), 1, 4096},
    {"reps",
     "samples of every kernel, workload and mode; 10, or 5 of kernels 8 times as slow as the "
     "fastest",
     COUNT(reps), 1, 1000},
    {"visits", "times that each workload is made anew and has its share of the samples; 5",
     COUNT(visits), 1, 1000},
    {"seconds", "more visits until rows are narrow, or the run took so long; none", COUNT(seconds),
     1, 100000},
    {"precision", "percent within which the ratio of a narrow row is known; 3", COUNT(precision), 1,
     99},
    {"ring", "batches that cold samples go round", COUNT(ring), 1, RING_MAX},
    {"modes", "cold, warm, iteration: list; cold and warm", TEXT(mode)},
    {"place", "kernels of the host, of the device, or all: host, device, all", TEXT(place)},
    {"queue", "minutes to queue for another bench on this machine; 10, and 0 does not",
     COUNT(queue), 0, 100000},
#undef TEXT
#undef COUNT
};
enum { KNOWN = sizeof known / sizeof *known, RECORDED = KNOWN - 1 /* queue changes no result */ };

/* The name of its variable of make. */
static const char *variable(const struct known *k, char name[16]) {
    int n = 0;
    for (; k->name[n]; n++) name[n] = (char)toupper((unsigned char)k->name[n]);
    name[n] = '\0';
    return name;
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

/* An empty text keeps the preset: make passes unset variables so. */
static int take(const struct known *k, const char *text, struct options *out, struct error *err) {
    char *at = (char *)out + k->at, *end, name[16];
    if (!k->most) *(const char **)at = text;
    if (!k->most || !*text) return 0;
    long value = strtol(text, &end, 10);
    if (*end || value < k->least || value > k->most)
        return fail(err, "%s: '%.40s' is not a number from %d to %d", variable(k, name), text,
                    k->least, k->most);
    *(int *)at = (int)value;
    return 0;
}

/* All subjects in the order in which they are measured: rules, then other operations. */
static struct subject subject(int k) {
    if (k < RULE_COUNT) return (struct subject){OP_STEP, (enum rule_kind)k};
    return (struct subject){(enum operation)(k - RULE_COUNT + 1), RULE_sgd};
}

const char *subject_name(struct subject s) {
    return s.operation == OP_STEP ? rule_info(s.rule).name : operation_name(s.operation);
}

static const char *const mode_words[] = {"cold", "warm", "iteration", NULL}; /* enum cache_mode */
static const char *const place_words[] = {"host", "device", NULL};           /* enum backend */

/* Marks the words that a list names; "all" marks every one. words: the last is NULL. what: for the
 * message. */
static int take_words(const char *what, const char *list, const char *const *words, bool *taken,
                      struct error *err) {
    enum { WORD_MOST = 40 };
    char *copy = strdup(list), *rest = NULL, names[WORD_MOST * SUBJECTS_MAX] = "";
    int status = copy ? 0 : fail(err, "out of memory");
    for (int k = 0; words[k]; k++) text_add(names, sizeof names, " %s", words[k]);
    for (char *w = copy ? strtok_r(copy, " ,", &rest) : NULL; w && !status;
         w = strtok_r(NULL, " ,", &rest)) {
        bool found = false;
        for (int k = 0; words[k]; k++)
            if (strcmp(w, "all") == 0 || strcmp(w, words[k]) == 0) taken[k] = found = true;
        if (!found) status = fail(err, "%s '%.40s'; known:%s all", what, w, names);
    }
    free(copy);
    return status;
}

/* Does the same, and sets bit 1 << i for word i. */
static int take_bits(const char *what, const char *list, const char *const *words, unsigned *bits,
                     struct error *err) {
    bool taken[32] = {false};
    const int status = take_words(what, list, words, taken, err);
    for (int k = 0; words[k]; k++) *bits |= (unsigned)taken[k] << k;
    return status;
}

static int take_subjects(const char *list, struct subject_list *out, struct error *err) {
    const char *words[SUBJECTS_MAX + 1] = {NULL};
    bool taken[SUBJECTS_MAX] = {false};
    for (int k = 0; k < SUBJECTS_MAX; k++) words[k] = subject_name(subject(k));
    const int status = take_words("RULE: unknown rule", list, words, taken, err);
    for (int k = 0; k < SUBJECTS_MAX; k++)
        if (taken[k]) out->at[out->count++] = subject(k);
    return status;
}

static bool any_axis(const struct spec_overrides *a) {
    return *a->alpha || *a->dims || *a->rows || *a->batch || *a->pooling;
}

/* Reads the command line into the texts. */
static int read_texts(int argc, char **argv, const char *texts[KNOWN], bool *smoke,
                      struct error *err) {
    enum { HELP = KNOWN, SMOKE, VERSION };
    struct option longs[KNOWN + 4] = {{0}};
    for (int i = 0; i < KNOWN; i++) {
        texts[i] = "";
        longs[i] = (struct option){known[i].name, required_argument, NULL, i};
    }
    longs[HELP] = (struct option){"help", no_argument, NULL, HELP};
    longs[SMOKE] = (struct option){"smoke", no_argument, NULL, SMOKE};
    longs[VERSION] = (struct option){"version", no_argument, NULL, VERSION};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (c == '?' && optopt >= KNOWN && optopt <= VERSION)
            return fail(err, "'%.80s': this option takes no value; see --help", word);
        if (c == '?') return fail(err, "unknown option '%.80s'; see --help", word);
        if (c == ':') return fail(err, "%.80s: its value is missing; see --help", word);
        if (c == 'h' || c == HELP) help();
        if (c == VERSION) printf("bench %s\n", environment_version());
        if (c == 'h' || c == HELP || c == VERSION) return 1;
        *smoke |= c == SMOKE;
        if (c < KNOWN) texts[c] = optarg;
    }
    if (optind < argc) return fail(err, "unknown argument '%.80s'; see --help", argv[optind]);
    return 0;
}

static int compile_filter(struct options *o, struct error *err) {
    char why[128];
    int status = regcomp(&o->pattern, o->filter, REG_EXTENDED | REG_NOSUB);
    if (status == 0) return 0;
    regerror(status, &o->pattern, why, sizeof why);
    return fail(err, "FILTER='%.100s': %s", o->filter, why);
}

int options_parse(int argc, char **argv, struct options *out, struct error *err) {
    const char *texts[KNOWN];
    *out = (struct options){
        .threads = omp_get_max_threads(), .visits = 5, .precision = 3, .ring = 3, .queue = 10};
    int status = read_texts(argc, argv, texts, &out->smoke, err);
    for (int i = 0; status == 0 && i < KNOWN; i++) status = take(&known[i], texts[i], out, err);
    if (status) return status;
    out->fewer = out->reps == 0;
    if (out->fewer) out->reps = out->smoke ? 1 : 10;
    if (out->visits > out->reps) out->visits = out->reps;
    const bool trace = *out->trace;
    if (trace && (*out->axes.alpha || *out->axes.rows))
        return fail(err, "ALPHA and ROWS do not apply to a trace: its ids are what they are");
    if (!*out->out) out->out = "build/results";
    if (!*out->spec)
        out->spec = out->smoke                      ? "datasets/smoke.spec"
                    : any_axis(&out->axes) || trace ? "datasets/zipf.spec"
                                                    : "datasets/standard.spec";
    if (compile_filter(out, err) ||
        take_subjects(out->smoke && !*out->rule ? "all" : out->rule, &out->subjects, err) ||
        take_bits("MODES: unknown mode", *out->mode ? out->mode : "cold warm", mode_words,
                  &out->modes, err) ||
        take_bits("PLACE: unknown place", *out->place ? out->place : "all", place_words,
                  &out->places, err))
        return -1;
    omp_set_num_threads(out->threads);
    return 0;
}

void options_describe(const struct options *o,
                      void (*add)(void *ctx, const char *key, const char *value), void *ctx) {
    for (int i = 0; i < RECORDED; i++) {
        const char *at = (const char *)o + known[i].at;
        char name[16], key[32], count[16];
        snprintf(key, sizeof key, "emb_var_%s", variable(&known[i], name));
        if (known[i].most) snprintf(count, sizeof count, "%d", *(const int *)at);
        add(ctx, key, known[i].most ? count : *(const char *const *)at);
    }
}
