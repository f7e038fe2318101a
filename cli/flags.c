/* SPDX-License-Identifier: MIT */
#include "cli/flags.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/spec_keys.h"

/* getopt_long returns this for flag number i. */
enum { HELP = 'h', FIRST_FLAG = 256 };

static void help(const struct usage *u) {
    printf("usage: embfuse %s%s%s [--FLAG VALUE ...]\n", u->command, u->operand ? " " : "",
           u->operand ? u->operand : "");
    for (int i = 0; i < u->count; i++) {
        const struct flag *f = &u->flags[i];
        char form[80];
        snprintf(form, sizeof form, "--%s %s", f->name, f->value ? f->value : "");
        printf("  %-26s %s\n", form, f->help);
    }
    if (u->more) printf("%s", u->more);
}

/* Explains what getopt_long refused. optopt holds the character of a short flag, or the number of a
 * long flag that takes no value and got one. */
static int refuse(const struct usage *u, const char *last, struct error *err) {
    if (optopt >= FIRST_FLAG)
        return fail(err, "%s: --%s takes no value; see embfuse %s --help", u->command,
                    u->flags[optopt - FIRST_FLAG].name, u->command);
    char dash[3] = {'-', (char)optopt, '\0'};
    return fail(err, "%s: unknown flag '%.80s'; see embfuse %s --help", u->command,
                optopt ? dash : last, u->command);
}

int flags_parse(const struct usage *u, int argc, char **argv, const char **operand,
                struct error *err) {
    struct option longs[u->count + 2];
    memset(longs, 0, sizeof longs);
    for (int i = 0; i < u->count; i++) {
        const struct flag *f = &u->flags[i];
        *f->text = NULL;
        longs[i] = (struct option){f->name, f->value ? required_argument : no_argument, NULL,
                                   FIRST_FLAG + i};
    }
    longs[u->count] = (struct option){"help", no_argument, NULL, HELP};
    if (operand) *operand = NULL;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        if (c == ':')
            return fail(err, "%s: the value of %.80s is missing", u->command, argv[optind - 1]);
        if (c == '?') return refuse(u, argv[optind - 1], err);
        if (c == HELP) {
            help(u);
            return 1;
        }
        const struct flag *f = &u->flags[c - FIRST_FLAG];
        if (*f->text) return fail(err, "%s: --%s is given twice; delete one", u->command, f->name);
        *f->text = optarg ? optarg : "";
    }
    if (operand && optind < argc) *operand = argv[optind++];
    if (optind == argc) return 0;
    return fail(err, "%s: unexpected argument '%.80s'; see embfuse %s --help", u->command,
                argv[optind], u->command);
}

int flag_whole(const char *name, const char *text, int64_t least, int64_t most, int64_t *out,
               struct error *err) {
    if (!text) return 0;
    char flag[40];
    double value;
    snprintf(flag, sizeof flag, "--%s", name);
    if (number_read(flag, true, (double)least, (double)most, text, (struct where){NULL, 0}, &value,
                    err))
        return -1;
    *out = (int64_t)value;
    return 0;
}

int flag_required(const char *name, const char *text, struct error *err) {
    return text && *text ? 0 : fail(err, "--%s is missing; see --help", name);
}

const struct spec *spec_pick(const struct spec_list *list, const char *path, const char *name,
                             struct error *err) {
    char names[360] = "";
    if (!name && list->count == 1) return list->specs;
    for (int i = 0; i < list->count; i++) {
        const char *known = list->specs[i].name;
        if (name && strcmp(known, name) == 0) return &list->specs[i];
        text_add(names, sizeof names, " %s", known);
    }
    if (name)
        fail(err, "%.60s: no workload '%.60s'; it has%s", path, name, names);
    else
        fail(err, "%.60s: several workloads, choose one with --workload:%s", path, names);
    return NULL;
}
