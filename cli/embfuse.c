/* SPDX-License-Identifier: MIT
 *
 * The program embfuse, "bring your own batch": look at what there is, make batches, and hold a
 * kernel against your own framework. This file dispatches, and is the only one that prints errors.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct command {
    const char *name, *does;
    int (*run)(int argc, char **argv, struct error *err);
} commands[] = {
    {"list", "kernels and rules of this build", list_command},
    {"gen", "make a batch and write it as .npy", gen_command},
    {"stats", "what the ids of a workload or trace are like", stats_command},
    {"step", "apply a kernel to your own batch and tables, checked", step_command},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(void) {
    printf("usage: embfuse COMMAND [--FLAG VALUE ...]; embfuse COMMAND --help says more\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-7s %s\n", commands[i].name, commands[i].does);
    printf("exit status: 0 fine, 1 usage or environment, 2 wrong result\n");
}

static int dispatch(int argc, char **argv, struct error *err) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help();
        return EXIT_FINE;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return commands[i].run(argc - 1, argv + 1, err);
    fail(err, "unknown command '%.60s'; known: list, gen, stats, step; see embfuse --help", name);
    return EXIT_USAGE;
}

/* What was printed must have arrived: a full disk is an error. */
static int close_output(int status, struct error *err) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    if (status) return status;
    fail(err, "cannot write to standard output: %s", strerror(errno));
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    struct error err = {""};
    int status = close_output(dispatch(argc, argv, &err), &err);
    if (status) fprintf(stderr, "embfuse: %s\n", err.text);
    return status;
}
