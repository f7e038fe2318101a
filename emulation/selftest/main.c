/* SPDX-License-Identifier: MIT
 *
 * Prints TAP. Without arguments it runs itself once for each case, with the name of the case, and
 * judges the outcome.
 */
#include <string.h>
#include <sys/wait.h>

#include "emulation/selftest/selftest.h"

#if defined(__SANITIZE_ADDRESS__)
#define BUILD ADDRESS
#elif defined(__SANITIZE_THREAD__)
#define BUILD THREAD
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BUILD ADDRESS
#elif __has_feature(thread_sanitizer)
#define BUILD THREAD
#elif __has_feature(undefined_behavior_sanitizer)
#define BUILD UNDEFINED
#endif
#endif
#ifndef BUILD /* gcc has no macro for undefined; only its library has this function */
__attribute__((weak)) void __ubsan_handle_type_mismatch_v1_abort(void *, void *);
#define BUILD (__ubsan_handle_type_mismatch_v1_abort ? UNDEFINED : PLAIN)
#endif

static const struct self_case *const tables[] = {
    good_kernels,  good_fences,    good_intrinsics,  good_library_calls, good_host_calls,
    planted_races, planted_fences, planted_accesses, planted_barriers};
enum { GOOD = 5, TABLES = sizeof tables / sizeof *tables };

/* --- in the process of a case */

static void run_in_all_orders(void (*run)(void)) {
    emulation_schedule(EMULATION_ASCENDING, 1);
    run();
    emulation_schedule(EMULATION_DESCENDING, 1);
    run();
    for (uint64_t seed = 1; seed <= 3; seed++) {
        emulation_schedule(EMULATION_RANDOM, seed);
        run();
    }
}

static int run_case(const char *name) {
    for (int i = 0; i < TABLES; i++)
        for (const struct self_case *c = tables[i]; c->name; c++)
            if (strcmp(c->name, name) == 0)
                return (i < GOOD ? run_in_all_orders(c->run) : c->run()), 0;
    fprintf(stderr, "there is no case \"%s\"\n", name);
    return 2;
}

/* --- in the process that judges */

static int number, failures;

/* Runs the case; returns the status and the output of the process. */
static int outcome(const char *program, const char *name, char *said, size_t size) {
    char command[1024];
    snprintf(command, sizeof command, "'%s' '%s' 2>&1", program, name);
    fflush(stdout);
    FILE *out = popen(command, "r");
    if (!out) abort();
    size_t n = 0, got;
    while ((got = fread(said + n, 1, size - 1 - n, out)) > 0) n += got;
    said[n] = '\0';
    char rest[4096];
    while (fread(rest, 1, sizeof rest, out) > 0) {
    }
    return pclose(out);
}

static void tell(bool ok, const char *kind, const char *name, const char *said) {
    printf("%s %d - %s: %s\n", ok ? "ok" : "not ok", ++number, kind, name);
    if (ok) return;
    failures++;
    for (const char *line = said; *line;) {
        int length = (int)strcspn(line, "\n");
        printf("#   %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

static void judge(const char *program, const struct self_case *c, bool good) {
    const char *expected = NULL;
    for (int i = 0; i < 3; i++)
        if (c->caught[i].builds & (unsigned)BUILD) expected = c->caught[i].says;
    if (!good && !expected) {
        printf("ok %d - is caught: %s # SKIP this build cannot see it\n", ++number, c->name);
        return;
    }
    char said[16384];
    const int status = outcome(program, c->name, said, sizeof said);
    if (good)
        tell(status == 0 && !*said, "passes", c->name, said);
    else
        tell(status != 0 && strstr(said, expected), "is caught", c->name, said);
}

static void add_tsan_option(const char *option) {
    const char *options = getenv("TSAN_OPTIONS");
    char more[1024];
    snprintf(more, sizeof more, "%s %s", options ? options : "", option);
    setenv("TSAN_OPTIONS", more, 1);
}

int main(int argc, char **argv) {
    if (argc > 1) return run_case(argv[1]);
    add_tsan_option("atexit_sleep_ms=0"); /* else a second at each exit, to wait for threads */
    for (int i = 0; i < TABLES; i++) {
        if (i == GOOD)
            add_tsan_option("symbolize=0"); /* slow, and only the kind of a report counts */
        for (const struct self_case *c = tables[i]; c->name; c++) judge(argv[0], c, i < GOOD);
    }
    printf("1..%d\n", number);
    return failures > 0;
}
