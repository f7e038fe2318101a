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

enum { NAMES_MAX = 40 * RULE_COUNT };

/* The rules that a kernel applies, joined by `between`. Returns how many. */
static int rule_names(const struct kernel *k, const char *between, char names[NAMES_MAX]) {
    int count = 0;
    names[0] = '\0';
    for (int r = 0; r < RULE_COUNT; r++)
        if (kernel_applies(k, (enum rule_kind)r))
            text_add(names, NAMES_MAX, "%s%s", count++ ? between : "",
                     rule_info((enum rule_kind)r).name);
    return count;
}

enum { STATES_MAX = 60 };

static void state_text(const struct rule_info *r, char text[STATES_MAX]) {
    text[0] = '\0';
    if (r->elem_states) text_add(text, STATES_MAX, "%d per element", r->elem_states);
    if (r->row_states)
        text_add(text, STATES_MAX, "%s%d per row", r->elem_states ? ", " : "", r->row_states);
    if (!text[0]) strcpy(text, "none");
}

static void kernel_text(const struct registered *r, enum form form) {
    const struct kernel *k = r->kernel;
    char rules[NAMES_MAX], marks[TRAITS_MAX], verified[VERIFIED_MAX];
    const char *more = k->place == ON_DEVICE ? form == FORM_MARKDOWN ? ", " : "\n    " : "";
    verified_text(k, verified);
    if (rule_names(k, " ", rules) == RULE_COUNT) strcpy(rules, "all");
    traits_text(k->traits, " ", marks);
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
    char states[STATES_MAX];
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

/* Between the strings of a list. */
static const char next_string[] = "\", \"";

static void kernel_json(const struct registered *r) {
    const struct kernel *k = r->kernel;
    char rules[NAMES_MAX], traits[TRAITS_MAX], verified[VERIFIED_MAX];
    verified_text(k, verified);
    rule_names(k, next_string, rules);
    traits_text(k->traits, next_string, traits);
    printf("{");
    json_text("name", k->name, ", ");
    json_text("family", r->family, ", ");
    json_text("place", place_name(k->place), ", ");
    if (verified[0]) json_text("verified", verified, ", ");
    json_text("label", k->label, ", ");
    json_text("idea", k->idea, ", ");
    printf("\"rules\": [\"%s\"], \"traits\": [%s%s%s]}", rules, k->traits ? "\"" : "", traits,
           k->traits ? "\"" : "");
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

static void rule_json(const struct rule_info *r) {
    json_text("name", r->name, ", ");
    json_text("formula", r->formula, ", ");
    json_text("source", r->source, ", \"params\": [");
    for (int k = 0; k < r->num_params; k++) {
        printf(k ? ", {" : "{");
        json_text("name", r->params[k].name, ", ");
        printf("\"preset\": %.9g}", (double)r->params[k].preset);
    }
    printf("], ");
    json_states("elem", r->elem, r->elem_states);
    json_states("row", r->row, r->row_states);
    printf("\"elem_states\": %d, \"row_states\": %d, \"reduces\": %s, \"linear\": %s, "
           "\"idle_is_identity\": %s}",
           r->elem_states, r->row_states, r->sums_before || r->sums_after ? "true" : "false",
           r->linear ? "true" : "false", r->idle_is_identity ? "true" : "false");
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
        rule_json(&info);
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
