/* SPDX-License-Identifier: MIT */
#include "cli/plot.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/outputs.h"
#include "harness/workload/regular_file.h"

/* Writes NAME = 'text', with quotes doubled and nothing expanded. */
static void assign(FILE *script, const char *name, const char *text) {
    fprintf(script, "%s = '", name);
    for (; *text; text++) fprintf(script, *text == '\'' ? "''" : "%c", *text);
    fprintf(script, "'\n");
}

/* Runs gnuplot on the script. If it fails, err has the first line of its output that is not empty. */
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
    return fail(err, "gnuplot failed: %s", line);
}

static int draw(const char *kind, const char *out, const struct plot *p, bool titled,
                struct error *err) {
    const char *font = getenv("FONT");
    FILE *script = tmpfile();
    if (!script) return fail(err, "no temporary file: %s", strerror(errno));
    assign(script, "kind", kind);
    assign(script, "out", out);
    if (font && *font) assign(script, "face", font);
    assign(script, "heading", titled ? p->heading : "");
    assign(script, "machine", titled ? p->machine : "");
    p->fill(script, p->ctx);
    fputs(p->frame, script);
    int status = fflush(script) ? fail(err, "no temporary file: %s", strerror(errno))
                                : run_gnuplot(script, err);
    fclose(script);
    struct stat st;
    if (status == 0 && (stat(out, &st) || st.st_size == 0))
        status = fail(err, "gnuplot drew nothing into %s", out);
    return status;
}

static int write_title(struct outputs *o, const char *path, const struct plot *p,
                       struct error *err) {
    FILE *file = outputs_text(o, path, err);
    if (!file) return -1;
    fprintf(file, "%s\n%s\n", p->heading, p->machine);
    return file_end(file, path, err);
}

int plot_draw(const char *prefix, const struct plot *p, struct error *err) {
    static const char *const kinds[] = {"svg", "png"};
    const char *title = getenv("TITLE");
    bool titled = !title || strcmp(title, "0") != 0;
    struct outputs o = {0};
    int status = titled ? 0 : write_title(&o, path_of(prefix, "txt").text, p, err);
    for (int i = 0; status == 0 && i < 2; i++) {
        const char *part = outputs_add(&o, path_of(prefix, kinds[i]).text, err);
        status = part ? draw(kinds[i], part, p, titled, err) : -1;
    }
    return outputs_end(&o, status, err);
}
