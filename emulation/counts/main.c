/* SPDX-License-Identifier: MIT
 *
 * Runs one step, or another operation, of every device kernel on the workloads of a spec, checks its
 * result, and writes what it counted meanwhile. The device is the PTX lane's.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulation/counts/counts.h"
#include "emulation/emulation.h"
#include "harness/measure/measure.h"
#include "harness/registry.h"

static const char help[] =
    "usage: counts --spec=FILE [OPTION ...]; run from the suite's root\n"
    "  --kernel=TEXT      only kernels with this text in their names\n"
    "  --workload=TEXT    only workloads with this text in their names\n"
    "  --out=FILE         for the counts, a JSON object per line [standard output]\n"
    "  --lines            also count by lines of the source\n"
    "  --model=DEVICE     also model L2 of a100, h100, h200 or b200; may be repeated\n"
    "  --part=N           the models have 1/N of the SMs and of L2 [1]\n"
    "  --mib=M            the models have this L2 instead\n"
    "  --seed=S           order of the warps in the models, 0: in turn [0]\n"
    "  --jobs=N           kernels at a time [2]\n"
    "  --registers=FILE   of every kernel [tests/golden/cuda_resources.txt]\n"
    "exit status: 0 fine, 1 usage or environment, 2 wrong result, 86 a defect that the lane "
    "found\n";

enum { JOBS_MOST = 64 };

struct options {
    const char *spec, *kernel, *workload, *out, *registers;
    const char *models[8];
    int num_models, part, jobs;
    double mib;
    uint64_t seed;
    bool lines;
};

static int parse(int argc, char **argv, struct options *o, struct error *err) {
    static const struct option longs[] = {{"spec", 1, NULL, 's'},
                                          {"kernel", 1, NULL, 'k'},
                                          {"workload", 1, NULL, 'w'},
                                          {"out", 1, NULL, 'o'},
                                          {"lines", 0, NULL, 'l'},
                                          {"model", 1, NULL, 'm'},
                                          {"part", 1, NULL, 'p'},
                                          {"mib", 1, NULL, 'b'},
                                          {"seed", 1, NULL, 'r'},
                                          {"help", 0, NULL, 'h'},
                                          {"jobs", 1, NULL, 'j'},
                                          {"registers", 1, NULL, 'g'},
                                          {0}};
    *o = (struct options){.part = 1, .jobs = 2, .registers = "tests/golden/cuda_resources.txt"};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) >= 0;) {
        switch (c) {
        case 's': o->spec = optarg; break;
        case 'k': o->kernel = optarg; break;
        case 'w': o->workload = optarg; break;
        case 'o': o->out = optarg; break;
        case 'l': o->lines = true; break;
        case 'm':
            if (o->num_models == 8) return fail(err, "counts: more than 8 models");
            o->models[o->num_models++] = optarg;
            break;
        case 'p': o->part = atoi(optarg); break;
        case 'b': o->mib = atof(optarg); break;
        case 'r': o->seed = strtoull(optarg, NULL, 10); break;
        case 'j': o->jobs = atoi(optarg); break;
        case 'g': o->registers = optarg; break;
        case 'h': fputs(help, stdout); return 1;
        default: return fail(err, "counts --help lists the options");
        }
    }
    if (optind < argc) return fail(err, "counts: '%.40s' is no option", argv[optind]);
    if (o->jobs < 1 || o->jobs > JOBS_MOST)
        return fail(err, "counts: --jobs is from 1 to %d", JOBS_MOST);
    if (!o->spec) return fail(err, "counts: --spec is missing");
    return 0;
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

static int prepare(const struct options *o, struct error *err) {
    emulation_schedule(EMULATION_ASCENDING, 1);
    if (o->lines) counts_by_line();
    if (o->num_models && counts_registers(o->registers))
        return fail(err, "counts: --registers: '%.200s' has none", o->registers);
    for (int i = 0; i < o->num_models; i++)
        if (counts_model(o->models[i], o->part, o->seed, o->mib))
            return fail(err, "counts: --model=%.40s --part=%d: no such model", o->models[i],
                        o->part);
    return 0;
}

/* One workload, in the memory of the device. */
struct setting {
    const struct spec *spec;
    struct workload workload;
    struct row_index index;
    struct rule *rules;
    struct rule_step *steps;
    struct place_setup setup;
    struct place *place;
};

static int setting_open(struct setting *s, const struct spec *spec, struct error *err) {
    *s = (struct setting){.spec = spec};
    if (workload_generate(spec, 1, GRAD_EXACT, &s->workload, err)) return -1;
    const struct workload *w = &s->workload;
    s->index = row_index_build(&w->batches[0]);
    s->rules = must_have(calloc((size_t)w->num_tables, sizeof *s->rules));
    s->steps = must_have(calloc((size_t)w->num_tables, sizeof *s->steps));
    for (int32_t t = 0; t < w->num_tables; t++) {
        s->rules[t] = rule_default(w->tables[t].rule);
        s->steps[t] = rule_step(s->rules[t], MEASURED_STEP);
    }
    s->setup = (struct place_setup){.shapes = w->tables,
                                    .num_tables = w->num_tables,
                                    .batches = w->batches,
                                    .index = &s->index,
                                    .ring = 1,
                                    .threads = 1,
                                    .seed = w->seed,
                                    .weight_grad = w->weight_grad};
    s->place = place_device_open(&s->setup, err);
    return s->place ? 0 : -1;
}

static void setting_close(struct setting *s) {
    if (s->place) s->place->ops->close(s->place);
    row_index_free(&s->index);
    free(s->rules);
    free(s->steps);
    workload_free(&s->workload);
}

static void write_counts(FILE *out, const struct setting *s, const struct kernel *k) {
    char labels[1024];
    const struct batch *in = &s->workload.batches[0];
    const struct traffic t = traffic_of(k->operation, in, &s->index);
    snprintf(labels, sizeof labels,
             "\"workload\": \"%s\", \"rule\": \"%s\", \"operation\": \"%s\", \"kernel\": \"%s\", "
             "\"lookups\": %lld, \"unique\": %lld, \"compulsory\": %lld, ",
             s->workload.name, rule_info(s->spec->rule).name, operation_name(k->operation), k->name,
             (long long)in->lookups, (long long)s->index.rows, (long long)t.compulsory);
    counts_end(out, labels);
}

/* 0: right; 1: wrong; -1: could not run. err says why. */
static int check(struct setting *s, const struct place_job *job, struct error *err) {
    struct table_set shapes = {
        .count = s->workload.num_tables, .shapes = s->workload.tables, .seed = s->workload.seed};
    const struct check c = {.in = &s->workload.batches[0],
                            .index = &s->index,
                            .rules = s->rules,
                            .step = MEASURED_STEP,
                            .before = tables_initial_row,
                            .before_ctx = &shapes,
                            .exact = batch_sums_exact(&s->workload.batches[0], GRAD_EXACT)};
    struct check_result result;
    const int status = runner_check(s->place, job, c, &result, err);
    if (status > 0) fail(err, "%s: %.300s", job->kernel->name, result.message);
    return status;
}

static int run_with(struct setting *s, const struct kernel *k, struct place_scratch *scratch,
                    struct place_scratch *output, struct place_scratch *weight_grad, FILE *out,
                    struct error *err) {
    const bool writes = k->operation != OP_STEP, weights = !writes && s->workload.weight_grad;
    if (runner_scratch_open(s->place, k, scratch, err) ||
        runner_output_open(s->place, &s->setup, k->operation, output, err) ||
        runner_weight_grad_open(s->place, &s->setup, k->operation, weight_grad, err))
        return -1;
    const struct place_job job = {.kernel = k,
                                  .steps = s->steps,
                                  .scratch = scratch,
                                  .output = writes ? output : NULL,
                                  .weight_grad = weights ? weight_grad : NULL};
    counts_begin();
    int status = runner_step(s->place, &job, POISON, err);
    write_counts(out, s, k);
    return status == 0 ? check(s, &job, err) : status;
}

static int run_kernel(struct setting *s, const struct kernel *k, FILE *out, struct error *err) {
    struct place_scratch scratch = {0}, output = {0}, weight_grad = {0};
    const int status = run_with(s, k, &scratch, &output, &weight_grad, out, err);
    s->place->ops->scratch_close(s->place, &scratch);
    s->place->ops->scratch_close(s->place, &output);
    s->place->ops->scratch_close(s->place, &weight_grad);
    return status;
}

/* A dense step walks all rows of the tables: those of small ones say as much. */
static bool too_dense(const struct setting *s, const struct kernel *k) {
    enum { ROWS_MOST = 50000 };
    int64_t rows = 0;
    for (int32_t t = 0; t < s->workload.num_tables; t++) rows += s->workload.tables[t].rows;
    return (k->traits & DENSE_STEP) && rows > ROWS_MOST;
}

static bool wanted(const struct setting *s, const struct kernel *k) {
    if (too_dense(s, k)) return false;
    if (k->operation == OP_STEP && s->workload.weight_grad && !(k->traits & WEIGHT_GRAD))
        return false;
    return !kernel_refuses(k, &s->workload.batches[0]) && kernel_applies(k, s->spec->rule);
}

/* In a process of its own, so that no kernel's counts depend on what ran before it. Its counts go to a
 * file without a name. */
struct child {
    pid_t pid;
    FILE *out;
};

static int run_child(const struct spec *spec, const struct kernel *k, FILE *out) {
    struct setting s;
    struct error err;
    int status = setting_open(&s, spec, &err);
    if (status == 0 && wanted(&s, k)) status = run_kernel(&s, k, out, &err);
    setting_close(&s);
    if (status == 0) return EXIT_FINE;
    fprintf(stderr, "%s: %s\n", spec->name, err.text);
    return status > 0 ? EXIT_WRONG_RESULT : EXIT_USAGE;
}

static int start(const struct spec *spec, const struct kernel *k, struct child *c,
                 struct error *err) {
    c->out = tmpfile();
    c->pid = c->out ? fork() : -1;
    if (c->pid < 0) return fail(err, "counts: a process cannot be started");
    if (c->pid > 0) return 0;
    const int status = run_child(spec, k, c->out);
    exit(fclose(c->out) ? EXIT_USAGE : status);
}

/* Waits for its end and passes on its counts. Returns its exit status. */
static int finish(struct child *c, FILE *out) {
    int status;
    char part[4096];
    if (waitpid(c->pid, &status, 0) < 0) return EXIT_USAGE;
    rewind(c->out);
    for (size_t n; (n = fread(part, 1, sizeof part, c->out)) > 0;) fwrite(part, 1, n, out);
    fclose(c->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_USAGE;
}

/* All device kernels on a workload, a few at a time. Returns the worst exit status. */
static int run_workload(const struct options *o, const struct spec *spec, FILE *out,
                        struct error *err) {
    struct child running[JOBS_MOST];
    int first = 0, count = 0, worst = 0;
    for (const struct registered *r = registry(); r->kernel; r++) {
        if (r->kernel->place != ON_DEVICE) continue;
        if (o->kernel && !strstr(r->kernel->name, o->kernel)) continue;
        if (count == o->jobs) {
            worst = larger(worst, finish(&running[first++ % JOBS_MOST], out));
            count--;
        }
        fflush(out); /* else the child would write it, too */
        if (start(spec, r->kernel, &running[(first + count) % JOBS_MOST], err)) return -1;
        count++;
    }
    while (count-- > 0) worst = larger(worst, finish(&running[first++ % JOBS_MOST], out));
    return worst;
}

static int run_all(const struct options *o, FILE *out, struct error *err) {
    static const struct spec_overrides none = {0};
    struct spec_list list;
    if (spec_read(o->spec, &none, &list, err)) return -1;
    int worst = 0;
    for (int i = 0; worst >= 0 && i < list.count; i++)
        if (!o->workload || strstr(list.specs[i].name, o->workload)) {
            const int status = run_workload(o, &list.specs[i], out, err);
            worst = status < 0 ? status : larger(worst, status);
        }
    spec_list_free(&list);
    return worst;
}

int main(int argc, char **argv) {
    struct options o;
    struct error err;
    int status = parse(argc, argv, &o, &err);
    if (status > 0) return EXIT_FINE;
    if (status == 0) status = registry_ready(&err);
    if (status == 0) status = prepare(&o, &err);
    FILE *out = status == 0 && o.out ? fopen(o.out, "w") : stdout;
    if (!out) status = fail(&err, "counts: --out: '%.200s' cannot be written", o.out);
    if (status == 0) status = run_all(&o, out, &err);
    if (out && fclose(out) && status == 0) status = fail(&err, "counts: writing failed");
    if (status >= 0) return status;
    fprintf(stderr, "%s\n", err.text);
    return EXIT_USAGE;
}
