/* SPDX-License-Identifier: MIT
 *
 * Workloads from recorded ids: cut in order, features side by side.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/work_files.h"

#include "tests/support/generate.h"

static void trace_in_order(void **state) {
    static const char first[] = "1 2\n3\n\n4 4 4\n5\n", second[] = "7\n8\n9\n\n6\n";
    struct work_path a = work_path("workload", "a.txt"), b = work_path("workload", "b.txt");
    struct spec_list like =
        points_of("workload t\nbatch 2\ndim 3 4\npooling mean\nid_type int32\nseed 5\n");
    char paths[3 * sizeof a.text];
    struct workload w;
    struct error err = {""};
    (void)state;
    assert_int_equal(work_write(a.text, first, sizeof first - 1), 0);
    assert_int_equal(work_write(b.text, second, sizeof second - 1), 0);
    snprintf(paths, sizeof paths, "%s,%s", a.text, b.text);
    if (workload_from_trace(paths, &like.specs[1], 8, GRAD_EXACT, &w, &err))
        fail_msg("%s", err.text);
    assert_string_equal(w.name, "a+b/dim:4");
    assert_int_equal(w.ring, 2); /* the fifth bag is left over */
    assert_int_equal(w.num_tables, 2);
    assert_int_equal(w.tables[0].rows, 6);
    assert_int_equal(w.tables[1].rows, 10);
    assert_int_equal(w.tables[1].dim, 4);
    static const int64_t ids[2][5] = {{1, 2, 3, 7, 8}, {4, 4, 4, 9, 0}};
    static const int64_t offsets[2][5] = {{0, 2, 3, 4, 5}, {0, 0, 3, 4, 4}};
    for (int k = 0; k < 2; k++) {
        const struct batch *in = &w.batches[k];
        assert_int_equal(batch_validate(in, &err), 0);
        assert_int_equal(in->lookups, offsets[k][4]);
        assert_memory_equal(in->offsets, offsets[k], sizeof offsets[k]);
        for (int64_t i = 0; i < in->lookups; i++) assert_int_equal(batch_id(in, i), ids[k][i]);
        assert_int_equal(in->features[1].pooling, POOL_MEAN);
        assert_int_equal(in->grad_elements, 2 * 8);
    }
    workload_free(&w);
    like.specs[0].num_batches = 0;
    assert_int_equal(workload_from_trace(a.text, like.specs, 3, GRAD_EXACT, &w, &err), 0);
    assert_int_equal(w.ring, 1); /* shorter than 2^20 lookups: the whole trace */
    assert_int_equal(w.batches[0].flat_bags, 5);
    assert_int_equal(w.batches[0].lookups, 7);
    workload_free(&w);
    like.specs[0].num_batches = 1;
    like.specs[0].batches[0] = 6;
    assert_int_equal(workload_from_trace(a.text, like.specs, 3, GRAD_EXACT, &w, &err), -1);
    assert_non_null(strstr(err.text, "a batch of 6 bags from a trace of 5; take 1 to 5"));
    assert_int_equal(work_write(b.text, "1\n", 2), 0);
    like.specs[0].batches[0] = 1;
    assert_int_equal(workload_from_trace(paths, like.specs, 1, GRAD_EXACT, &w, &err), -1);
    assert_non_null(strstr(err.text, "b.txt: 1 bags where the first file has 5"));
    spec_list_free(&like);
}

/* Two files with numbers of bags of their own: a batch takes two bags of one, and one of the other. */
static void own_bags(void **state) {
    static const char first[] = "1 2\n3\n\n4 4 4\n5\n", second[] = "7\n8 9\n";
    struct work_path a = work_path("workload", "own_a.txt"), b = work_path("workload", "own_b.txt");
    struct spec_list like = points_of("workload t\nbatch 2+1\ndim 3\nrule sgd\n");
    char paths[3 * sizeof a.text];
    struct workload w;
    struct error err = {""};
    (void)state;
    assert_int_equal(work_write(a.text, first, sizeof first - 1), 0);
    assert_int_equal(work_write(b.text, second, sizeof second - 1), 0);
    snprintf(paths, sizeof paths, "%s,%s", a.text, b.text);
    if (workload_from_trace(paths, like.specs, 8, GRAD_EXACT, &w, &err)) fail_msg("%s", err.text);
    assert_int_equal(w.ring, 2);
    assert_non_null(strstr(w.text, "batch 2+1 dim 3"));
    static const int64_t ids[2][5] = {{1, 2, 3, 7}, {4, 4, 4, 8, 9}};
    static const int64_t offsets[2][4] = {{0, 2, 3, 4}, {0, 0, 3, 5}};
    for (int k = 0; k < 2; k++) {
        const struct batch *in = &w.batches[k];
        assert_int_equal(batch_validate(in, &err), 0);
        assert_int_equal(in->flat_bags, 3);
        assert_memory_equal(in->offsets, offsets[k], sizeof offsets[k]);
        for (int64_t i = 0; i < in->lookups; i++) assert_int_equal(batch_id(in, i), ids[k][i]);
        assert_int_equal(in->features[1].grad_offset, 2 * 3); /* one behind the other */
        assert_int_equal(in->grad_elements, 3 * 3);
    }
    workload_free(&w);
    like.specs[0].num_batches = 3;
    assert_int_equal(workload_from_trace(paths, like.specs, 1, GRAD_EXACT, &w, &err), -1);
    assert_non_null(strstr(err.text, "2 files, but batches of 3 numbers of bags"));
    spec_list_free(&like);
}

/* What a trace has of its own is no part of its name; a long list keeps its axes. */
static void names_of_traces(void **state) {
    static const struct {
        const char *path, *spec, *name;
    } cases[] = {{"x/a.txt.gz", "alpha 0 1\ndim 8 16\n", "a/dim:8"},
                 {"a.txt,y/b.ids.npy", "rows 8 9\nids zipf uniform\nseed 1 2\n", "a+b/seed:1"},
                 {"c.0,c.1,c.2,c.3", "dim 8 16\n", "c+3_more/dim:8"},
                 {"caf\xe9\n.txt", "", "caf??"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200], name[SPEC_NAME_MAX];
        snprintf(text, sizeof text, "workload t\n%s", cases[i].spec);
        struct spec_list like = points_of(text);
        workload_trace_name(cases[i].path, &like.specs[0], name);
        assert_string_equal(name, cases[i].name);
        spec_list_free(&like);
    }
}

static void keys_beside_a_trace(void **state) {
    static const char *const refused[] = {"micro_batches 2", "column_shards 2", "features 2"};
    struct work_path a = work_path("workload", "keys.txt");
    struct workload w;
    struct error err;
    (void)state;
    assert_int_equal(work_write(a.text, "1 3\n3\n", 6), 0);
    for (int i = 0; i < 3; i++) {
        char text[64];
        snprintf(text, sizeof text, "workload t\nbatch 2\n%s\n", refused[i]);
        struct spec_list like = points_of(text);
        assert_int_equal(workload_from_trace(a.text, like.specs, 1, GRAD_EXACT, &w, &err), -1);
        assert_non_null(strstr(err.text, "does not apply to a trace"));
        spec_list_free(&like);
    }
    struct spec_list like = points_of("workload t\npadding 3\n");
    like.specs[0].num_batches = 0;
    assert_int_equal(workload_from_trace(a.text, like.specs, 1, GRAD_EXACT, &w, &err), 0);
    assert_int_equal(w.batches[0].features[0].padding_id, 3);
    assert_non_null(strstr(w.text, " padding 3"));
    workload_free(&w);
    spec_list_free(&like);
}

TESTS(workload_trace) {
    ADD_TEST(own_bags);
    ADD_TEST(trace_in_order);
    ADD_TEST(names_of_traces);
    ADD_TEST(keys_beside_a_trace);
    return run_listed("workload_trace");
}
