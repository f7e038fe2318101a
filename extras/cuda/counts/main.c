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

#include "extras/cuda/counts/counts.h"
#include "extras/cuda/counts/one_kernel.h"
#include "emulation/emulation.h"
#include "harness/registry.h"

static const char help[] =
    "usage: counts --spec=FILE [OPTION ...]; run from the suite's root\n"
    "  --kernel=TEXT      only kernels with this text in their names\n"
    "  --out=FILE         for the counts, a JSON object per line [standard output]\n"
    "  --lines            also count by lines of the source\n"
    "  --jobs=N           kernels at a time [2]\n"
    "exit status: 0 fine, 1 usage or environment, 2 wrong result, 86 a defect that the lane "
    "found\n";

enum { JOBS_MOST = 64 };

struct options {
    const char *spec, *kernel, *out;
    int jobs;
    bool lines;
};

static int parse(int argc, char **argv, struct options *o, struct error *err) {
    static const struct option longs[] = {{"spec", 1, NULL, 's'},
                                          {"kernel", 1, NULL, 'k'},
                                          {"out", 1, NULL, 'o'},
                                          {"lines", 0, NULL, 'l'},
                                          {"help", 0, NULL, 'h'},
                                          {"jobs", 1, NULL, 'j'},
                                          {0}};
    *o = (struct options){.jobs = 2};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) >= 0;) {
        switch (c) {
        case 's': o->spec = optarg; break;
        case 'k': o->kernel = optarg; break;
        case 'o': o->out = optarg; break;
        case 'l': o->lines = true; break;
        case 'j': o->jobs = atoi(optarg); break;
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

/* Counts one kernel in a process of its own, so that its counts do not depend on what ran before. They
 * go to a file without a name. */
struct child {
    pid_t pid;
    FILE *out;
};

static int start(const struct spec *spec, const struct kernel *k, struct child *c,
                 struct error *err) {
    c->out = tmpfile();
    c->pid = c->out ? fork() : -1;
    if (c->pid < 0) return fail(err, "counts: a process cannot be started");
    if (c->pid > 0) return 0;
    const int status = one_kernel(spec, k, c->out);
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
    for (int i = 0; worst >= 0 && i < list.count; i++) {
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
    if (o.lines) counts_by_line();
    emulation_schedule(EMULATION_ASCENDING, 1);
    FILE *out = status == 0 && o.out ? fopen(o.out, "w") : stdout;
    if (!out) status = fail(&err, "counts: --out: '%.200s' cannot be written", o.out);
    if (status == 0) status = run_all(&o, out, &err);
    if (out && fclose(out) && status == 0) status = fail(&err, "counts: writing failed");
    if (status >= 0) return status;
    fprintf(stderr, "%s\n", err.text);
    return EXIT_USAGE;
}
