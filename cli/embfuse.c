/* SPDX-License-Identifier: MIT
 *
 * The program embfuse, "bring your own batch": it lists kernels, makes batches, and applies kernels
 * to your own arrays. This file dispatches, and only this file prints errors.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "harness/measure/environment.h"

static const struct subcommand core[] = {
    {"list", "list the kernels and rules of this build", list_command},
    {"gen", "make a batch and write it as .npy", gen_command},
    {"stats", "print statistics of the ids of a workload or trace", stats_command},
    {"step", "apply a kernel to your own batch and tables, and check it", operation_command},
    {"forward", "look up and pool the rows of your own batch and tables, and check it",
     operation_command},
    {"gradient", "write the gradient of your own batch as rows and values, and check it",
     operation_command},
    {"weight-grad", "write the gradient of your own batch's per-sample weights, and check it",
     operation_command},
};

#define EXTRA(word) extern const struct subcommand word##_command;
#include "extra_commands.inc"
#undef EXTRA
#define EXTRA(word) &word##_command,
static const struct subcommand *const extras[] = {
#include "extra_commands.inc"
    NULL};

enum { CORE = sizeof core / sizeof *core, COMMANDS = CORE + sizeof extras / sizeof *extras - 1 };

static const struct subcommand *command(int i) {
    return i < CORE ? &core[i] : extras[i - CORE];
}

static void help(void) {
    printf("usage: embfuse COMMAND [--FLAG VALUE ...]; --FLAG=VALUE works, too\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-11s %s\n", command(i)->name, command(i)->does);
    printf("  help        this, or the flags of COMMAND: help COMMAND, COMMAND --help, COMMAND -h\n"
           "  --version   version, commit and compiler\n"
           "environment: OMP_NUM_THREADS is the number of threads; EMBFUSE_ISA=avx512|avx2|plain\n"
           "says which instructions a portable build uses; default: the best that the CPU has\n"
           "exit status: 0 fine, 1 usage or environment, 2 wrong result,\n"
           "3 from step: it wrote all files, but the check cannot judge some rows\n");
}

static const struct subcommand *find(const char *name, struct error *err) {
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(command(i)->name, name) == 0) return command(i);
    char known[200] = "known:";
    for (int i = 0; i < COMMANDS; i++) text_add(known, sizeof known, " %s,", command(i)->name);
    text_add(known, sizeof known, " help; see embfuse --help");
    if (*name)
        fail(err, "unknown command '%.60s'; %s", name, known);
    else
        fail(err, "no command; %s", known);
    return NULL;
}

/* help COMMAND is COMMAND --help. */
static int help_command(int argc, char **argv, struct error *err) {
    if (argc == 1) {
        help();
        return EXIT_FINE;
    }
    if (argc > 2) {
        fail(err, "help: unexpected argument '%.60s'; see embfuse --help", argv[2]);
        return EXIT_USAGE;
    }
    const struct subcommand *c = find(argv[1], err);
    char flag[] = "--help", *with_flag[] = {argv[1], flag, NULL};
    return c ? c->run(2, with_flag, err) : EXIT_USAGE;
}

static int dispatch(int argc, char **argv, struct error *err) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help_command(argc - 1, argv + 1, err);
    if (strcmp(name, "--version") == 0) {
        printf("embfuse %s\n", environment_version());
        return EXIT_FINE;
    }
    const struct subcommand *c = find(name, err);
    return c ? c->run(argc - 1, argv + 1, err) : EXIT_USAGE;
}

/* Flushes the output: a full disk is an error. */
static int close_output(int status, struct error *err) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    if (status) return status;
    fail(err, "cannot write to standard output: %s", strerror(errno));
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    struct error err = {""};
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit fails, with a message */
    int status = close_output(dispatch(argc, argv, &err), &err);
    if (status) fprintf(stderr, "embfuse: %s\n", err.text);
    return status;
}
