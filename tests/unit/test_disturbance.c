/* SPDX-License-Identifier: MIT
 *
 * Tests when a sample counts as disturbed, with planted files of /proc.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/measure/disturbance.h"

#include "tests/support/cmocka_cases.h"
#include "tests/support/work_files.h"

/* A folder of two threads with these files; NULL: no file. */
static struct disturbance of(const char *first, const char *second) {
    struct work_path a = work_path("disturbance/self/task/7", "schedstat"),
                     b = work_path("disturbance/self/task/8", "schedstat"),
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
    assert_true(of("0 0 0\n", "0 0 0\n").waited == 0); /* Linux does not record waiting */
    assert_true(of(NULL, NULL).waited == 0);
    assert_true(disturbance_now("/nowhere").waited == 0);
}

/* Of a sample of 50 ms, 0.4 ms are nothing. */
static void a_lost_percent_disturbs(void **state) {
    const struct disturbance before = {1, 2};
    (void)state;
    assert_false(disturbed(before, before, 50e-3));
    assert_false(disturbed(before, (struct disturbance){1 + 4e-4, 2}, 50e-3));
    assert_true(disturbed(before, (struct disturbance){1 + 6e-4, 2}, 50e-3));
    assert_true(disturbed(before, (struct disturbance){1 + 3e-4, 2 + 3e-4}, 50e-3));
}

/* The CPU of this thread lost 30 ms to others of the hypervisor; the sum of all CPUs and one that is not there do not count. */
static void stolen_time_disturbs(void **state) {
    struct work_path file = work_path("disturbance", "stat"), all = work_path("disturbance", "");
    cpu_set_t mine;
    char text[200];
    int cpu = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    while (!CPU_ISSET(cpu, &mine)) cpu++;
    const long ticks = 3 * sysconf(_SC_CLK_TCK) / 100;
    snprintf(text, sizeof text,
             "cpu  %d 9 9 9 9 9 9 999 0 0\ncpu%d 1 2 3 4 5 6 7 %ld 0 0\ncpu1023 1 1 1 1 1 1 1 77 0 "
             "0\nintr 5\n",
             cpu, cpu, ticks);
    assert_int_equal(work_write(file.text, text, strlen(text)), 0);
    assert_true(fabs(disturbance_now(all.text).stolen - 30e-3) < 1e-9);
    assert_int_equal(unlink(file.text), 0);
    assert_true(disturbance_now(all.text).stolen == 0);
    const struct disturbance before = {1, 2};
    assert_true(disturbed(before, (struct disturbance){1, 2.01}, 50e-3));
    assert_false(disturbed(before, (struct disturbance){1, 2.01}, 1.5));
}

TESTS(disturbance) {
    ADD_TEST(waiting_is_added_up);
    ADD_TEST(a_lost_percent_disturbs);
    ADD_TEST(stolen_time_disturbs);
    return run_listed("disturbance");
}
