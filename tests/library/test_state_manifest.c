/* SPDX-License-Identifier: MIT
 *
 * Manifests that someone has edited, with a right checksum: damaged ones are passed over, and those that do not fit
 * are refused.
 */
#include "tests/library/state_pair.h"

static const struct edit edits[] = {
    {"rounding_seed 2\n", "", "rounding_seed or a table is missing"},
    {"rounding_seed 2\n", "rounding_seed 2\nrounding_seed 2\n", "write once: rounding_seed N"},
    {"rounding_seed 2\n", "rounding_seed\n", "write once: rounding_seed N"},
    {"rounding_seed 2\n", "rounding_seed 18446744073709551616\n",
     "rounding_seed is a whole number"},
    {"rounding_seed 2\n", "rounding_seed -2\n", "rounding_seed is a whole number"},
    {"rounding_seed 2\n", "rounding_seed 2 3\n", "write once: rounding_seed N"},
    {"library", "bibliothek", "'bibliothek' begins no line here"},
    {"library", "hyper lr 1\nlibrary", "'hyper' begins no line here"},
    {"library", "file weight.0.npy\nlibrary", "'file' begins no line here"},
    {"rows 3", "rows 0", "a table line lacks something"},
    {"rows 3", "rows 9300000000000000000", "rows is a whole number"},
    {"rows 3", "rows 3 rows 3", "rows twice"},
    {"dim 2 ", "", "a table line lacks something"},
    {"dim 2 ", "dim 2147483648 ", "dim is a whole number"},
    {"rule adam_row_bias ", "", "a table line lacks something"},
    {"rule adam_row_bias ", "rule adamant ", "rule is one of"},
    {"weight_type bf16", "weight_type bf15", "weight_type is one of"},
    {"rounding nearest", "rounding", "rounding is one of"},
    {" steps 2", "", "a table line lacks something"},
    {"steps 2", "steps 2.0", "steps is a whole number"},
    {"steps 2", "steps 9300000000000000000", "steps is a whole number"},
    {"embfuse state 1", "embfuse state_1", "not the manifest of a saved state"},
    {"hyper lr 2 ", "hyper lr nan ", "lr is a number, not 'nan'"},
    {"beta1 ", "beta1 1", "beta1 is a number from 0 to below 1"},
    {"hyper lr", "hyper momentum 1 lr", "'momentum' in this line"},
    {"file weight.0.npy", "file weight.npy",
     "the table has file weight.0.npy, type uint16, shape 3,2"},
    {"file row_state.0.npy", "file state.0.0.npy", "the table has file row_state.0.npy"},
    {"shape 3,2", "shape 3,3", "the table has file weight.0.npy, type uint16, shape 3,2"},
    {"type uint16", "type float16", "the table has file weight.0.npy"},
    {"type uint16 ", "", "the table has file weight.0.npy"},
    {"bytes 1", "bytes x1", "bytes is a whole number"},
    {"bytes 1", "bytes 9", "but the manifest says 9"},
    {"xxh3 ", "xxh3 x", "xxh3 is a whole number of hexadecimal digits"},
    {"xxh3 ", "xxh3 1", "xxh3 is a whole number of hexadecimal digits"},
    {"table rows 2", "file a\ntable rows 2", "a file more than the table has"},
    {"file weight.1.npy", NULL, "the line of weight.1.npy is missing"},
    {"file state.0.1.npy", "# file state.0.1.npy", "the line of state.0.1.npy is missing"},
    {"table", NULL, "rounding_seed or a table is missing"},
    {"embfuse state 1", "embfuse stage 1", "not the manifest of a saved state"},
    {"library", "\n# a comment\n  library", ""},
    {"rounding nearest ", "", ""},
    {"table rows 3 dim 2 ", "table dim 2 rows 3 ", ""},
};
enum { EDITS = sizeof edits / sizeof *edits };

static void other_content(void **state) {
    const struct edit *e = ((const struct kernel_test *)*state)->param;
    struct pair_of_states s;
    size_t size;
    begin(&s, "content");
    char *text = (char *)state_contents(file_of(&s, 2, "manifest"), &size);
    const char *changed = edited(text, size - 21, e);
    seal(&s, 2, changed, strlen(changed));
    if (*e->said) {
        expect_older(&s, e->to ? e->to : e->from, e->said);
    } else {
        struct embfuse_error why = {""};
        if (embfuse_load(s.to.model, s.folder.text, NULL, &why)) fail_msg("%s", why.text);
        expect_equal(&s.to, &s.last, e->to);
    }
    free(text);
    end(&s);
}

/* Another version, and what does not fit the model: no older state is taken. */
static const struct edit misfits[] = {
    {"embfuse state 1", "embfuse state 2", "format version 2; this library reads 1"},
    {"embfuse state 1", "embfuse state ", "format version ; this"},
    {"rows 3 dim 2 ", "rows 3 dim 2 weight_type fp16 ", NULL},
    {"rounding stochastic", "rounding nearest",
     "table 1 has rounding nearest, but the model's has stochastic"},
    {"momentum_type fp32 rounding s", "momentum_type bf16 rounding s",
     "table 1 has momentum_type bf16, but the model's has fp32"},
};

static void refused_content(void **state) {
    const struct edit *e = ((const struct kernel_test *)*state)->param;
    struct pair_of_states s;
    size_t size;
    begin(&s, "misfit");
    char *text = (char *)state_contents(file_of(&s, 2, "manifest"), &size);
    const char *changed = edited(text, size - 21, e);
    seal(&s, 2, changed, strlen(changed));
    if (e->said)
        expect_error(&s, EMBFUSE_REFUSED, e->said);
    else
        expect_older(&s, e->to, "weight_type twice");
    free(text);
    end(&s);
}

TESTS(state_manifest) {
    char name[100];
    for (int i = 0; i < EDITS; i++) {
        snprintf(name, sizeof name, "a manifest with %d: %.40s", i, edits[i].said);
        add_test(name, other_content, NULL, &edits[i]);
    }
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        snprintf(name, sizeof name, "a manifest that does not fit: %zu", i);
        add_test(name, refused_content, NULL, &misfits[i]);
    }
    return run_listed("state manifest");
}
