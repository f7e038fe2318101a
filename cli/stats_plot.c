/* SPDX-License-Identifier: MIT
 *
 * Gives gnuplot a script of variables and two small data blocks; cli/stats.gp draws them. On the
 * logarithmic axis of ranks the points are evenly spaced, so there are few of them.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/outputs.h"
#include "cli/stats.h"

static const char frame[] = "cli/stats.gp";

/* NAME = 'text', with quotes doubled and nothing expanded. */
static void assign(FILE *f, const char *name, const char *text) {
    fprintf(f, "%s = '", name);
    for (; *text; text++) fprintf(f, *text == '\'' ? "''" : "%c", *text);
    fprintf(f, "'\n");
}

static void write_ranks(FILE *f, const struct stats *s) {
    const double per_decade = 40;
    fprintf(f, "$ranks << EOD\n");
    for (int64_t i = 0, rank = 0; rank < s->ids.distinct; i++) {
        int64_t next = (int64_t)pow(10, (double)i / per_decade);
        if (next > s->ids.distinct) next = s->ids.distinct;
        if (next > rank) fprintf(f, "%lld %lld\n", (long long)next, (long long)s->hits[next - 1]);
        rank = next;
    }
    fprintf(f, "EOD\n");
}

static void write_runs(FILE *f, const struct stats *s) {
    fprintf(f, "$runs << EOD\n");
    for (int b = 0; b < RUN_BINS; b++)
        fprintf(f, "%.6g\n", 100.0 * (double)s->ids.run_lookups[b] / (double)s->ids.lookups);
    fprintf(f, "EOD\n");
}

static void write_script(FILE *f, const char *kind, const char *out, const struct workload *w,
                         const struct stats *s) {
    const struct id_stats *x = &s->ids;
    char summary[200];
    snprintf(summary, sizeof summary, "%lld lookups of %lld distinct rows, hottest row %.3g %%",
             (long long)x->lookups, (long long)x->distinct,
             100.0 * (double)x->hottest / (double)x->lookups);
    assign(f, "kind", kind);
    assign(f, "out", out);
    assign(f, "heading", w->name);
    assign(f, "machine", summary);
    write_ranks(f, s);
    write_runs(f, s);
    fprintf(f, "load '%s'\n", frame);
}

/* Runs gnuplot on the script and takes the first line of its output that is not empty. */
static int run_gnuplot(FILE *script, struct error *err) {
    char command[60], line[200] = "", more[200];
    snprintf(command, sizeof command, "exec gnuplot /dev/fd/%d 2>&1", fileno(script));
    FILE *output = popen(command, "r");
    if (!output) return fail(err, "gnuplot: %s", strerror(errno));
    while ((!line[0] || line[0] == '\n') && fgets(line, sizeof line, output)) continue;
    while (fgets(more, sizeof more, output)) continue;
    int status = pclose(output);
    if (status == 0) return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return fail(err, "no gnuplot; install it (Debian: apt-get install gnuplot-nox)");
    line[strcspn(line, "\n")] = '\0';
    return fail(err, "gnuplot failed on %s: %s", frame, line);
}

static int draw(const char *kind, const char *out, const struct workload *w, const struct stats *s,
                struct error *err) {
    FILE *script = tmpfile();
    if (!script) return fail(err, "no temporary file: %s", strerror(errno));
    write_script(script, kind, out, w, s);
    int status = fflush(script) ? fail(err, "no temporary file: %s", strerror(errno))
                                : run_gnuplot(script, err);
    fclose(script);
    struct stat st;
    if (status == 0 && (stat(out, &st) || st.st_size == 0))
        status = fail(err, "gnuplot drew nothing into %s", out);
    return status;
}

int stats_plot(const char *prefix, const struct workload *w, const struct stats *s,
               struct error *err) {
    static const char *const kinds[] = {"svg", "png"};
    if (access(frame, R_OK)) return fail(err, "%s is missing; run from the suite's root", frame);
    if (s->ids.lookups == 0) return fail(err, "%s: only padding, so there is no picture", w->name);
    struct outputs o = {0};
    int status = 0;
    for (int i = 0; status == 0 && i < 2; i++) {
        const char *part = outputs_add(&o, path_of(prefix, kinds[i]).text, err);
        status = part ? draw(kinds[i], part, w, s, err) : -1;
    }
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}
