/* SPDX-License-Identifier: MIT
 *
 * The folder is the registry: every kernel file is in the table under its own name, with everything
 * that results and plots show of it, and includes only files of kernels/.
 */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { PATH = 600 };

/* Calls visit(path, folder, file) for every file below kernels/, and returns their number. */
static int each_file(void (*visit)(const char *path, const char *folder, const char *file)) {
    int count = 0;
    DIR *top = opendir("kernels");
    assert_non_null(top); /* tests run in the root of the repository */
    for (struct dirent *d; (d = readdir(top));) {
        char folder[PATH / 2], path[PATH];
        if (d->d_name[0] == '.') continue;
        snprintf(folder, sizeof folder, "kernels/%s", d->d_name);
        DIR *sub = opendir(folder);
        if (!sub) { /* a file, such as kernel.h */
            visit(folder, "", d->d_name);
            count++;
            continue;
        }
        for (struct dirent *f; (f = readdir(sub));) {
            if (f->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
            visit(path, d->d_name, f->d_name);
            count++;
        }
        closedir(sub);
    }
    closedir(top);
    return count;
}

static bool ends_in(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* --- names */

static void in_registry(const char *path, const char *folder, const char *file) {
    const bool shared = strcmp(folder, "host") == 0 || strcmp(folder, "device") == 0;
    const bool cuda = ends_in(file, ".cu");
    if (!*folder || shared || !(ends_in(file, ".c") || cuda)) return;
    int found = 0;
    for (const struct registered *r = registry(); r->kernel; r++) {
        size_t n = strlen(r->kernel->name);
        found += strcmp(r->family, folder) == 0 && strncmp(file, r->kernel->name, n) == 0 &&
                 strcmp(file + n, cuda ? ".cu" : ".c") == 0;
    }
    if (found != 1) fail_msg("%s is %d times in the registry under its name", path, found);
}

static void every_file_is_registered(void **state) {
    (void)state;
    assert_true(each_file(in_registry) > 6);
}

static void has_file(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    const struct registered *r = registry();
    while (r->kernel != k) r++;
    char c[PATH], cu[PATH];
    snprintf(c, sizeof c, "kernels/%s/%s.c", r->family, k->name);
    snprintf(cu, sizeof cu, "kernels/%s/%s.cu", r->family, k->name);
    if (strstr(EXTRA_KERNELS, c + strlen("kernels"))) skip(); /* it lives elsewhere; .cu too */
    FILE *f = fopen(c, "r");
    if (!f) f = fopen(cu, "r");
    assert_non_null(f);
    fclose(f);
}

static void names_are_unique(void **state) {
    (void)state;
    for (const struct registered *r = registry(); r->kernel; r++)
        for (const struct registered *before = registry(); before < r; before++) {
            assert_string_not_equal(r->kernel->name, before->kernel->name);
            assert_string_not_equal(r->kernel->label, before->kernel->label);
        }
}

/* --- what a rule says about itself */

static void assert_states(const struct rule_info *a, const struct rule_state *s, int count,
                          int most) {
    for (int k = 0; k < most; k++) {
        assert_true(!s[k].name == (k >= count));
        if (!s[k].name) continue;
        assert_true(*s[k].name && isfinite(s[k].initial) && s[k].low < s[k].high);
        const int from = s[k].initial_param;
        assert_true(from >= 0 && from < a->num_params);
        if (from) assert_true(s[k].initial == a->params[from].preset);
    }
}

static void rules_are_described(void **state) {
    (void)state;
    for (int i = 0; i < RULE_COUNT; i++) {
        const struct rule_info a = rule_info((enum rule_kind)i);
        assert_true(*a.formula && *a.source);
        assert_states(&a, a.elem, a.elem_states, RULE_ELEM_STATES);
        assert_states(&a, a.row, a.row_states, RULE_ROW_STATES);
        for (int k = 0; k < RULE_PARAMS; k++) {
            const struct rule_param *p = &a.params[k];
            assert_true(!p->name == (k >= a.num_params));
            if (!p->name) continue;
            assert_true(p->preset >= p->least && p->preset < p->below);
            bool starts = false; /* it is the initial value of a state */
            for (int s = 0; s < RULE_ELEM_STATES; s++) starts |= k && a.elem[s].initial_param == k;
            for (int s = 0; s < RULE_ROW_STATES; s++) starts |= k && a.row[s].initial_param == k;
            if (!starts && !strstr(a.formula, p->name))
                fail_msg("%s: %s is not in its formula", a.name, p->name);
        }
        assert_string_equal(a.params[RULE_LR].name, "lr");
        assert_true(!a.linear || (a.elem_states == 0 && a.row_states == 0));
        for (int k = 0; k < i; k++)
            assert_string_not_equal(a.name, rule_info((enum rule_kind)k).name);
    }
}

/* Every rule is a file of the same name, and the folder has no other files. */
static void rules_are_files(void **state) {
    (void)state;
    int files = 0;
    DIR *folder = opendir("rules");
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) files += ends_in(e->d_name, ".h");
    closedir(folder);
    assert_int_equal(files, RULE_COUNT);
    for (int i = 0; i < RULE_COUNT; i++) {
        char path[80];
        snprintf(path, sizeof path, "rules/%s.h", rule_info((enum rule_kind)i).name);
        if (access(path, R_OK) != 0) fail_msg("there is no %s", path);
    }
}

static void found_by_name(void **state) {
    (void)state;
    struct error err;
    for (const struct registered *r = registry(); r->kernel; r++)
        assert_ptr_equal(registry_find(r->kernel->operation, r->kernel->name, &err), r->kernel);
    assert_null(registry_find(OP_STEP, "cpu_lookup", &err)); /* it computes something else */
    assert_null(registry_find(OP_STEP, "no_such_kernel", &err));
    assert_non_null(strstr(err.text, "no_such_kernel"));
    assert_non_null(strstr(err.text, registry()->kernel->name));
}

/* --- what a kernel says about itself */

static void described(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    assert_true(k->label && *k->label);
    assert_true(k->idea && *k->idea && ends_in(k->idea, "."));
    assert_true(k->traits < 2 * WEIGHT_GRAD);
    assert_non_null(k->run);
    if (k->traits & DENSE_STEP) assert_true(k->traits & DENSE_GRAD);
    if (k->plan) assert_non_null(strstr(k->label, "plan"));
}

/* As many tables as a CUDA grid has blocks in its second dimension. */
static void most_tables(void **state) {
    enum { TABLES = 65535 };
    struct table_shape *tables = calloc(TABLES, sizeof *tables);
    struct feature *features = calloc(TABLES, sizeof *features);
    for (int32_t t = 0; t < TABLES; t++) {
        tables[t] = (struct table_shape){
            .rows = 1, .dim = 1, .rule = RULE_sgd, .features = 1, .lookups = 1, .first_row = t};
        features[t] = (struct feature){.table = t, .padding_id = -1, .lookups = 1};
    }
    const struct batch in = {.num_tables = TABLES,
                             .num_features = TABLES,
                             .bags = 1,
                             .lookups = TABLES,
                             .tables = tables,
                             .features = features,
                             .grad_elements = TABLES};
    assert_null(kernel_refuses(((const struct kernel_test *)*state)->kernel, &in));
    free(tables);
    free(features);
}

/* A kernel refuses what it cannot do, with a reason. */
static void refuses_rules_it_lacks(void **state) {
    struct kernel k = *((const struct kernel_test *)*state)->kernel;
    struct builder b;
    builder_begin(&b, 1, true);
    builder_feature(&b, builder_table(&b, 4, 4), POOL_SUM, -1);
    builder_finish(&b);
    k.traits |= STEP_PER_LOOKUP;
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        builder_rule(&b, 0, (enum rule_kind)rule);
        const char *refused = kernel_refuses(&k, &b.in);
        assert_true(rule_linear((enum rule_kind)rule) ? !refused : refused && *refused);
    }
    builder_rule(&b, 0, RULE_sgd);
    builder_adjust(&b, 0, (const float[RULE_SHARED]){[CLIP_NORM] = 1});
    assert_non_null(strstr(kernel_refuses(&k, &b.in), "step per lookup"));
    builder_free(&b);
}

/* --- what a kernel sees */

static void includes_kernels_only(const char *path, const char *folder, const char *file) {
    (void)folder, (void)file;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[400];
    for (int number = 1; fgets(line, sizeof line, f); number++) {
        char name[200];
        if (sscanf(line, " # include \"%199[^\"]\"", name) != 1) continue;
        if (strncmp(name, "kernels/", 8) != 0 && strcmp(name, "rules.h") != 0 &&
            strncmp(name, "rule_", 5) != 0)
            fail_msg("%s:%d includes %s", path, number, name);
    }
    fclose(f);
}

static void kernels_include_kernels(void **state) {
    (void)state;
    each_file(includes_kernels_only);
}

/* A rule is written once: no kernel has a square root or names a rule. */
static void knows_no_rule(const char *path, const char *folder, const char *file) {
    (void)file;
    if (!*folder) return;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char line[400];
    for (int number = 1; fgets(line, sizeof line, f); number++)
        for (int rule = 0; rule < RULE_COUNT; rule++) {
            char name[80];
            snprintf(name, sizeof name, "RULE_%s", rule_info((enum rule_kind)rule).name);
            if (strstr(line, "sqrt") || strstr(line, name))
                fail_msg("%s:%d knows a rule: %s", path, number, line);
        }
    fclose(f);
}

static void kernels_know_no_rule(void **state) {
    (void)state;
    each_file(knows_no_rule);
}

TESTS(registry) {
    add_test("every kernel file is registered", every_file_is_registered, NULL, NULL);
    add_test("names are unique", names_are_unique, NULL, NULL);
    add_test("rules are described", rules_are_described, NULL, NULL);
    add_test("rules are files", rules_are_files, NULL, NULL);
    add_test("found by name", found_by_name, NULL, NULL);
    add_test("kernels include kernels only", kernels_include_kernels, NULL, NULL);
    add_test("kernels know no rule", kernels_know_no_rule, NULL, NULL);
    add_kernel_tests("has a file of its name", has_file, NULL);
    add_kernel_tests("is described", described, NULL);
    add_kernel_tests("65535 tables", most_tables, NULL);
    add_kernel_tests("refuses rules that it lacks", refuses_rules_it_lacks, NULL);
    return run_listed("registry");
}
