/* SPDX-License-Identifier: MIT
 *
 * The words of a sharding: which are read, and where tables lie.
 */
#include "extras/ranks/sharding.h"

#include "tests/support/cmocka_cases.h"

static void words_are_read(void **state) {
    (void)state;
    static const char *const wrong[] = {"auto",     "table@",          "table@x",
                                        "row@1",    "table@9",         "table@1x",
                                        "table@-1", "table@1,row,row", ""};
    const struct table_shape shapes[2] = {{.rows = 50, .dim = 8}, {.rows = 30, .dim = 4}};
    struct sharding s;
    struct error err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(sharding_make(&s, wrong[i], shapes, 2, 4, 2, &err), -1);
    assert_int_equal(sharding_make(&s, "table@3,table-row@1", shapes, 2, 4, 2, &err), 0);
    assert_true(s.part[0 * 4 + 3] >= 0 && s.part[1 * 4 + 2] >= 0 && s.part[1 * 4 + 1] < 0);
    sharding_free(&s);
    /* The other table goes where there is less. */
    assert_int_equal(sharding_make(&s, "table@0,table", shapes, 2, 2, 1, &err), 0);
    assert_true(s.part[1 * 2 + 1] >= 0);
    sharding_free(&s);
}

TESTS(sharding) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_are_read)};
    return cmocka_run_group_tests_name("sharding", tests, NULL, NULL);
}
