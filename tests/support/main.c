/* SPDX-License-Identifier: MIT
 *
 * A program of tests: every test_NAME.c of its folder, each in a process of its own.
 *
 *     build/tests/unit [NAME...]      prints TAP; 0: all passed
 *
 * TESTS in the environment, a pattern such as '*: weighted*', selects single tests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUP(name) int tests_of_##name(void);
#include "groups.inc"
#undef GROUP

static const struct group {
    const char *name;
    int (*run)(void);
} groups[] = {
#define GROUP(name) {#name, tests_of_##name},
#include "groups.inc"
};

enum { GROUPS = sizeof groups / sizeof *groups };

static const struct group *find(const char *name) {
    for (int i = 0; i < GROUPS; i++)
        if (strcmp(groups[i].name, name) == 0) return &groups[i];
    fprintf(stderr, "no tests called %s; known:", name);
    for (int i = 0; i < GROUPS; i++) fprintf(stderr, " %s", groups[i].name);
    fprintf(stderr, "\n");
    exit(1);
}

/* 0: all tests of the group passed. A crash ends the process of this group alone. */
static int run_apart(const struct group *g) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) exit(g->run() ? 1 : 0);
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror(g->name);
        exit(1);
    }
    if (WIFSIGNALED(status)) printf("not ok - %s died of signal %d\n", g->name, WTERMSIG(status));
    return status;
}

int main(int argc, char **argv) {
    /* OpenMP reads the policy as it is loaded. Threads that spin would take most of the time. */
    if (!getenv("OMP_WAIT_POLICY")) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
    }
    if (argc == 2) return find(argv[1])->run() ? 1 : 0;
    int failed = 0;
    for (int i = 0; i < (argc > 1 ? argc - 1 : GROUPS); i++)
        failed += run_apart(argc > 1 ? find(argv[1 + i]) : &groups[i]) != 0;
    return failed ? 1 : 0;
}
