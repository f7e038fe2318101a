/* SPDX-License-Identifier: MIT
 *
 * When a sample counts as disturbed: planted folders of threads.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "harness/measure/disturbance.h"

#include "tests/support/cmocka_cases.h"
#include "tests/support/work_files.h"

/* A folder of two threads with these files; NULL: no file. */
static struct disturbance of(const char *first, const char *second) {
    struct work_path a = work_path("disturbance/7", "schedstat"),
                     b = work_path("disturbance/8", "schedstat"),
                     all = work_path("disturbance", "");
    unlink(a.text);
    unlink(b.text);
    if (first) assert_int_equal(work_write(a.text, first, strlen(first)), 0);
    if (second) assert_int_equal(work_write(b.text, second, strlen(second)), 0);
    return disturbance_now(all.text);
}

static void waiting_is_added_up(void **state) {
    (void)state;
    assert_true(fabs(of("5000000 1000000 3\n", "9 2500000 1\n").waited - 3.5e-3) < 1e-12);
    assert_true(isnan(of("0 0 0\n", "0 0 0\n").waited)); /* a kernel that does not count */
    assert_true(isnan(of(NULL, NULL).waited));
    assert_true(isnan(disturbance_now("/nowhere").waited));
}

/* Waiting of 1 % disturbs; where a kernel does not count it, any switch does. */
static void waits_and_switches_disturb(void **state) {
    const struct disturbance before = {1, 5}, uncounted = {NAN, 5};
    (void)state;
    assert_false(disturbed(before, (struct disturbance){1 + 4e-4, 9}, 50e-3));
    assert_true(disturbed(before, (struct disturbance){1 + 6e-4, 5}, 50e-3));
    assert_false(disturbed(uncounted, uncounted, 50e-3));
    assert_true(disturbed(uncounted, (struct disturbance){NAN, 6}, 50e-3));
    assert_true(disturbed(uncounted, (struct disturbance){1, 6}, 50e-3));
}

TESTS(disturbance) {
    ADD_TEST(waiting_is_added_up);
    ADD_TEST(waits_and_switches_disturb);
    return run_added("disturbance");
}
