/* SPDX-License-Identifier: MIT
 *
 * embfuse list: the kernels and rules of this build, as text, Markdown or JSON.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/verified.h"
#include "harness/measure/place.h"
#include "harness/registry.h"

enum form { FORM_TEXT, FORM_MARKDOWN, FORM_JSON };

enum { NAMES_MAX = 1000 };

static void append(char names[NAMES_MAX], const char *between, const char *name) {
    size_t used = strlen(names);
    snprintf(names + used, NAMES_MAX - used, "%s%s", used ? between : "", name);
}

/* The rules that a kernel applies, joined by `between`; all rules are `all`, if that is given. */
static void rule_names(const struct kernel *k, const char *between, const char *all,
                       char names[NAMES_MAX]) {
    int left_out = 0;
    names[0] = '\0';
    for (int r = 0; r < RULE_COUNT; r++)
        if (kernel_applies(k, (enum rule_kind)r))
            append(names, between, rule_info((enum rule_kind)r).name);
        else
            left_out++;
    if (all && left_out == 0) snprintf(names, NAMES_MAX, "%s", all);
}

static void trait_names(unsigned bits, const char *between, char names[NAMES_MAX]) {
    names[0] = '\0';
    for (int bit = 0; trait_name(bit); bit++)
        if (bits >> bit & 1) append(names, between, trait_name(bit));
}

static void state_text(const struct rule_info *r, char text[NAMES_MAX]) {
    char part[40];
    text[0] = '\0';
    snprintf(part, sizeof part, "%d per element", r->elem_states);
    if (r->elem_states) append(text, ", ", part);
    snprintf(part, sizeof part, "%d per row", r->row_states);
    if (r->row_states) append(text, ", ", part);
    if (!text[0]) append(text, "", "none");
}

static void kernel_text(const struct registered *r, enum form form) {
    const struct kernel *k = r->kernel;
    char rules[NAMES_MAX], marks[NAMES_MAX], verified[VERIFIED_MAX];
    const char *more = k->place == ON_DEVICE ? form == FORM_MARKDOWN ? ", " : "\n    " : "";
    verified_text(k, verified);
    rule_names(k, " ", "all", rules);
    trait_names(k->traits, " ", marks);
    if (form == FORM_MARKDOWN)
        printf("| `%s` | %s | %s%s%s | %s | %s | %s | %s |\n", k->name, r->family,
               place_name(k->place), more, verified, k->label, k->idea, rules, marks);
    else
        printf("%-20s %-8s %-7s %-32s %-8s %s\n    %s%s%s\n", k->name, r->family,
               place_name(k->place), k->label, rules, marks[0] ? marks : "-", k->idea, more,
               verified);
}

/* In a Markdown table a bar ends a cell, even in code. */
static void print_cell(const char *text) {
    for (; *text; text++) printf(*text == '|' ? "\\|" : "%c", *text);
}

static void rule_text(const struct rule_info *r, enum form form) {
    char states[NAMES_MAX];
    state_text(r, states);
    const char *sums = r->sums_before || r->sums_after ? "yes" : "no",
               *keeps = r->idle_is_identity ? "yes" : "no";
    if (form == FORM_MARKDOWN) {
        printf("| `%s` | `", r->name);
        print_cell(r->formula);
        printf("` | %s | %s | %s |\n", states, sums, keeps);
    } else
        printf("%-16s %-14s %-8s %-11s %s\n", r->name, states, sums, keeps, r->formula);
}

static void print_tables(enum form form) {
    int count;
    const struct registered *all = registry(&count);
    if (form == FORM_MARKDOWN)
        printf("| kernel | family | place | label | idea | rules | traits |\n"
               "|---|---|---|---|---|---|---|\n");
    else
        printf("%-20s %-8s %-7s %-32s %-8s %s\n", "KERNEL", "FAMILY", "PLACE", "LABEL", "RULES",
               "TRAITS");
    for (int i = 0; i < count; i++) kernel_text(&all[i], form);
    if (form == FORM_MARKDOWN)
        printf("\n| rule | formula | state | reduces over the row | a zero gradient changes "
               "nothing |\n"
               "|---|---|---|---|---|\n");
    else
        printf("\n%-16s %-14s %-8s %-11s %s\n", "RULE", "STATE", "REDUCES", "IDLE KEEPS",
               "FORMULA");
    for (int r = 0; r < RULE_COUNT; r++) {
        struct rule_info info = rule_info((enum rule_kind)r);
        rule_text(&info, form);
    }
}

/* "key": ["a", "b"] from names joined by blanks */
static void json_names(const char *key, char names[NAMES_MAX]) {
    char *rest = NULL;
    printf("\"%s\": [", key);
    for (char *n = strtok_r(names, " ", &rest), *first = n; n; n = strtok_r(NULL, " ", &rest)) {
        if (n != first) printf(", ");
        json_string(n);
    }
    printf("]");
}

static void kernel_json(const struct registered *r) {
    const struct kernel *k = r->kernel;
    char names[NAMES_MAX], verified[VERIFIED_MAX];
    verified_text(k, verified);
    printf("{");
    json_text("name", k->name, ", ");
    json_text("family", r->family, ", ");
    json_text("place", place_name(k->place), ", ");
    if (verified[0]) json_text("verified", verified, ", ");
    json_text("label", k->label, ", ");
    json_text("idea", k->idea, ", ");
    rule_names(k, " ", NULL, names);
    json_names("rules", names);
    printf(", ");
    trait_names(k->traits, " ", names);
    json_names("traits", names);
    printf("}");
}

static void json_states(const char *key, const struct rule_state *states, int count) {
    printf("\"%s\": [", key);
    for (int k = 0; k < count; k++) {
        printf(k ? ", {" : "{");
        json_text("name", states[k].name, ", ");
        printf("\"initial\": %.9g}", (double)states[k].initial);
    }
    printf("], ");
}

static const char *json_bool(bool yes) {
    return yes ? "true" : "false";
}

static void rule_json(const struct rule_info *r) {
    printf("\"params\": [");
    for (int k = 0; k < r->num_params; k++) {
        printf(k ? ", {" : "{");
        json_text("name", r->params[k].name, ", ");
        printf("\"preset\": %.9g}", (double)r->params[k].preset);
    }
    printf("], ");
    json_states("elem", r->elem, r->elem_states);
    json_states("row", r->row, r->row_states);
    printf("\"elem_states\": %d, \"row_states\": %d, \"reduces\": %s, \"linear\": %s, "
           "\"idle_is_identity\": %s",
           r->elem_states, r->row_states, json_bool(r->sums_before || r->sums_after),
           json_bool(r->linear), json_bool(r->idle_is_identity));
}

static void print_json(void) {
    int count;
    const struct registered *all = registry(&count);
    printf("{");
    json_text("isa", registry_isa(), ",\n \"kernels\": [");
    for (int i = 0; i < count; i++) {
        printf(i ? ",\n  " : "\n  ");
        kernel_json(&all[i]);
    }
    printf("],\n \"rules\": [");
    for (int r = 0; r < RULE_COUNT; r++) {
        struct rule_info info = rule_info((enum rule_kind)r);
        printf(r ? ",\n  {" : "\n  {");
        json_text("name", info.name, ", ");
        json_text("formula", info.formula, ", ");
        json_text("source", info.source, ", ");
        rule_json(&info);
        printf("}");
    }
    printf("]}\n");
}

int list_command(int argc, char **argv, struct error *err) {
    const char *json, *markdown;
    const struct flag flags[] = {
        {"json", NULL, "print JSON", &json},
        {"markdown", NULL, "print two Markdown tables", &markdown},
    };
    struct usage usage = {"list", NULL, NULL, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status < 0 ? EXIT_USAGE : EXIT_FINE;
    if (json && markdown) {
        fail(err, "list: --json and --markdown exclude each other");
        return EXIT_USAGE;
    }
    if (json)
        print_json();
    else
        print_tables(markdown ? FORM_MARKDOWN : FORM_TEXT);
    return EXIT_FINE;
}
