/* SPDX-License-Identifier: MIT
 *
 * Trains the tables of a workload on several ranks, and saves them for another number of ranks, another sharding, or
 * embfuse_load() in one process; see extras/ranks/checkpoint.h. Step n takes batch (n-1) % ring, so a training
 * that was saved and loaded goes on as if nothing had happened, with the same bits if its kernel has the trait
 * own_lookups or the sums are exact, as in all workloads.
 *
 *     launch.py -np 3 build/extras/ranks/train --rows=1e6 --rule=adam --sharding=row --steps=10 --save=FILE
 *     launch.py -np 2 build/extras/ranks/train --rows=1e6 --rule=adam --sharding=table --steps=10 --load=FILE --save=FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/disturbance.h"
#include "harness/measure/runner.h"
#include "harness/record/worklist.h"
#include "kernels/rules.h"
#include "extras/ranks/place_ranks.h"
#include "extras/ranks/program.h"

static const char help[] =
    "usage: extras/ranks/launch.py -np RANKS build/extras/ranks/train [--OPTION=VALUE ...]\n"
    "  --steps     steps to take [1]\n"
    "  --kernel    that takes them [cpu_fused]\n"
    "  --sharding  a word, or one for each table; see extras/ranks/README.md [table]\n"
    "  --load      file of a saved state to go on from, of any number of ranks\n"
    "  --save      file for the state after the last step\n"
    "  --spec --trace --alpha --dims --rows --batch --pooling --rule --seed --threads --ring\n"
    "              the workload, as in bench; it must be one, with one rule\n"
    "exit status: 0 fine, 1 usage or environment, 4 a rank died, stopped, or is out of memory\n";

struct train {
    struct transport *transport;
    const char *steps, *kernel, *save;
    struct ranks_options place;
    struct options options; /* of the workload */
    int argc;
    char **argv;
    int64_t count; /* of steps */
};

/* --- the command line */

/* The value of option --name in a word, or NULL. */
static char *value_of(char *word, const char *name) {
    const size_t length = strlen(name);
    const bool is = strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, length) == 0 &&
                    word[2 + length] == '=';
    return is ? word + 3 + length : NULL;
}

static bool of_workload(char *word) {
    static const char *const names[] = {"spec",    "trace", "alpha", "dims",    "rows", "batch",
                                        "pooling", "rule",  "seed",  "threads", "ring"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (value_of(word, names[i])) return true;
    return false;
}

/* 1: it printed help. */
static int parse(struct train *x, struct error *err) {
    static char threads[32];
    const struct {
        const char *name, **to;
    } own[] = {{"steps", &x->steps},
               {"kernel", &x->kernel},
               {"save", &x->save},
               {"load", &x->place.load},
               {"sharding", &x->place.sharding}};
    enum { OWN = sizeof own / sizeof *own };
    char **left = must_have(calloc((size_t)x->argc + 2, sizeof *left)), *end;
    int count = 0, status = 0;
    snprintf(threads, sizeof threads, "--threads=%d", program_threads(x->transport));
    left[count++] = x->argv[0];
    left[count++] = threads; /* the last of two counts */
    for (int i = 1; i < x->argc && status == 0; i++) {
        char *word = x->argv[i];
        int k = 0;
        while (k < OWN && !value_of(word, own[k].name)) k++;
        if (k < OWN)
            *own[k].to = value_of(word, own[k].name);
        else if (of_workload(word))
            left[count++] = word;
        else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            status = 1;
        else
            status = fail(err, "unknown option '%.80s'; see --help", word);
    }
    if (status > 0) fputs(help, stdout);
    if (status == 0) status = options_parse(count, left, &x->options, err);
    free(left);
    if (status) return status;
    x->count = strtol(x->steps, &end, 10);
    if (*end || end == x->steps || x->count < 0 || x->count > 1000000000)
        return fail(err, "--steps: '%.40s' is not a number from 0 to 1000000000", x->steps);
    return 0;
}

/* One workload with one rule. */
static int make(const struct train *x, struct workload *out, struct error *err) {
    struct worklist list;
    if (worklist_read(&x->options, &list, err)) return -1;
    const struct subject_list subjects = worklist_subjects(&list, 0);
    int status = 0;
    if (list.count != 1)
        status = fail(err,
                      "%.200s: %d workloads, and train takes one; say --rows, --dims ..., or "
                      "a --spec with one",
                      x->options.spec, list.count);
    else if (subjects.count != 1 || subjects.at[0].operation != OP_STEP)
        status = fail(err, "--rule: train takes one update rule");
    else
        status = worklist_make(&list, 0, subjects.at[0].rule, out, err);
    worklist_free(&list);
    return status;
}

/* --- the training */

struct training {
    struct place *place;
    const struct workload *w;
    const struct kernel *kernel;
    struct rule *rules;      /* [num_tables] */
    int64_t *taken;          /* [num_tables] steps so far */
    struct rule_step *steps; /* [num_tables] */
    uint64_t seed;           /* of stochastic rounding */
};

/* Takes rules, steps and seed from the loaded state, or as for new tables. */
static void begin(struct training *g) {
    const struct checkpoint *c = ranks_loaded(g->place);
    g->seed = c ? c->state.seed : g->w->seed;
    for (int32_t t = 0; t < g->w->num_tables; t++) {
        g->rules[t] = c ? c->state.tables[t].rule : workload_rule(g->w, t);
        g->taken[t] = c ? c->state.tables[t].steps : 0;
    }
}

static int step(struct training *g, struct error *err) {
    struct place_scratch none = {0};
    const struct place_job job = {.kernel = g->kernel,
                                  .batch = (int)(g->taken[0] % g->w->ring),
                                  .steps = g->steps,
                                  .scratch = &none};
    for (int32_t t = 0; t < g->w->num_tables; t++)
        g->steps[t] = rule_step(g->rules[t], ++g->taken[t]);
    return g->place->ops->run(g->place, &job, err);
}

static int train(const struct train *x, struct training *g, struct error *err) {
    size_t scratch;
    begin(g);
    const int64_t first = g->taken[0] + 1;
    int status = g->place->ops->scratch_bytes(g->place, g->kernel, &scratch, err);
    for (int32_t t = 0; status == 0 && t < g->w->num_tables; t++)
        if (!rule_has_step(g->rules[t].kind, g->taken[t] + x->count))
            status = fail(err, "--steps: %s counts steps in a float of each row: %d at most",
                          rule_info(g->rules[t].kind).name, RULE_COUNTED_STEPS);
    const double start = clock_seconds();
    for (int64_t n = 0; n < x->count && status == 0; n++) status = step(g, err);
    const double seconds = clock_seconds() - start;
    if (status == 0 && x->save)
        status = ranks_save(g->place, x->save, g->rules, g->taken, g->seed, err);
    if (status) return -1;
    printf("%s, %s, %s, %d ranks: ", g->w->name, g->kernel->name, x->place.sharding,
           x->transport->ranks);
    if (x->count)
        printf("steps %lld to %lld, %.3f ms each", (long long)first, (long long)g->taken[0],
               1e3 * seconds / (double)x->count);
    else
        printf("no steps");
    if (x->save) printf("; saved %s", x->save);
    printf("\n");
    return 0;
}

static int train_on(const struct train *x, const struct workload *w, struct error *err) {
    const size_t tables = (size_t)w->num_tables;
    const struct place_setup setup = {.shapes = w->tables,
                                      .num_tables = w->num_tables,
                                      .batches = w->batches,
                                      .ring = w->ring,
                                      .threads = x->options.threads,
                                      .seed = w->seed,
                                      .operation = OP_STEP};
    struct training g = {.w = w,
                         .kernel = registry_find(OP_STEP, x->kernel, err),
                         .rules = must_have(calloc(tables, sizeof *g.rules)),
                         .taken = must_have(calloc(tables, sizeof *g.taken)),
                         .steps = must_have(calloc(tables, sizeof *g.steps))};
    int status = g.kernel ? 0 : -1;
    for (int k = 0; status == 0 && k < w->ring; k++) status = batch_validate(&w->batches[k], err);
    if (status == 0)
        g.place = place_ranks_open(x->transport, &x->place, g.kernel->place, &setup, err);
    status = g.place ? train(x, &g, err) : -1;
    if (g.place) g.place->ops->close(g.place);
    free(g.rules);
    free(g.taken);
    free(g.steps);
    return status;
}

static int lead(void *ctx) {
    struct train *x = ctx;
    struct workload w = {0};
    struct error err;
    int status = parse(x, &err);
    if (status > 0) return EXIT_FINE;
    transport_phase(x->transport, "making the workload");
    if (status == 0) status = make(x, &w, &err);
    const char *own = status ? x->transport->phase : NULL; /* errors that ranks agree on have it */
    if (status == 0) status = train_on(x, &w, &err);
    workload_free(&w);
    if (status == 0) return EXIT_FINE;
    if (own && err.memory)
        fprintf(stderr, "ranks: rank 0, %s: %s\n", own, err.text);
    else
        fprintf(stderr, "ranks: %s\n", err.text);
    return err.memory ? EXIT_LOST : EXIT_USAGE;
}

int main(int argc, char **argv) {
    struct train x = {.steps = "1", .kernel = "cpu_fused", .place = {.sharding = "table"}};
    x.transport = program_open(&argc, &argv);
    if (!x.transport) return EXIT_USAGE;
    x.argc = argc;
    x.argv = argv;
    return program_run(x.transport, lead, &x);
}
