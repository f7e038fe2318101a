/* SPDX-License-Identifier: MIT
 *
 * A model in two threads at once, and in a child of fork() whose threads are gone: calls say so, and
 * neither crash nor hang.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extras/library/model.h"
#include "extras/library/tests/library_small.h"

/* While a call is under way, every other one is refused. */
static void a_second_call(void **state) {
    (void)state;
    struct small s, kept;
    struct embfuse_array array;
    struct embfuse_average average = {.size = sizeof average};
    struct embfuse_admission admission = {.size = sizeof admission};
    struct embfuse_monitor monitor;
    struct embfuse_schedule schedule = {.size = sizeof schedule};
    const struct embfuse_watched_row *rows;
    const char *name;
    int64_t n;
    size_t bytes;
    double x;
    struct call first = {NULL};
    small_open(&s, NULL);
    struct embfuse_model *m = s.model;
    assert_int_equal(call_begin(&first, m, NULL), 0);
    kept = s;
    SAYS(EMBFUSE_BUSY, "one at a time", embfuse_step(m, &s.batch, s.grad, &why));
    const int statuses[] = {embfuse_forward(m, &s.batch, s.output, NULL),
                            embfuse_bind(m, 0, 0, s.weight[1], 0, NULL),
                            embfuse_init_states(m, 1, NULL),
                            embfuse_initial(m, 1, 1, 0, &x, NULL),
                            embfuse_set(m, -1, "lr", 1, NULL),
                            embfuse_get(m, 0, "lr", &x, NULL),
                            embfuse_set_steps(m, 0, 1, NULL),
                            embfuse_get_steps(m, 0, &n, NULL),
                            embfuse_schedule_set(m, 0, &schedule, 1, NULL),
                            embfuse_output_elements(m, &s.batch, &n, NULL),
                            embfuse_step_kernel(m, &s.batch, &name, NULL),
                            embfuse_scratch_bytes(m, &s.batch, &bytes, NULL),
                            embfuse_set_scratch(m, NULL, 0, NULL),
                            embfuse_monitor_start(m, 0, 1, NULL),
                            embfuse_monitor_read(m, 0, 1, &monitor, NULL),
                            embfuse_monitor_rows(m, 0, &rows, &n, &n, NULL),
                            embfuse_save(m, "nowhere", NULL),
                            embfuse_load(m, "nowhere", NULL),
                            embfuse_average_before_step(m, &average, 1, &s.batch, NULL),
                            embfuse_average_update(m, &average, 1, NULL),
                            embfuse_average_finish(m, &average, 1, NULL),
                            embfuse_admit(m, &admission, 1, &s.batch, s.ids, NULL, NULL)};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i] != EMBFUSE_BUSY) fail_msg("call %zu: status %d", i, statuses[i]);
    FINE(embfuse_array_info(m, 0, 0, &array, &why));
    assert_memory_equal(&s, &kept, sizeof s);
    call_end(&first);
    FINE(embfuse_step(m, &s.batch, s.grad, &why));
    embfuse_model_free(m);
}

enum { CALLS = 20000 };

struct caller {
    struct small *s;
    pthread_barrier_t *begin;
    int64_t steps; /* that were taken */
    int wrong;     /* another status than OK and BUSY */
};

static void *step_often(void *of) {
    struct caller *c = of;
    pthread_barrier_wait(c->begin);
    for (int i = 0; i < CALLS; i++) {
        const int status = embfuse_step(c->s->model, &c->s->batch, c->s->grad, NULL),
                  freed = embfuse_set_scratch(c->s->model, NULL, 0, NULL);
        c->steps += status == 0;
        if (status && status != EMBFUSE_BUSY) c->wrong = status;
        if (freed && freed != EMBFUSE_BUSY) c->wrong = freed;
    }
    return NULL;
}

/* Every step of two threads is taken whole, or refused, though each frees the scratch. */
static void two_threads(void **state) {
    (void)state;
    struct small s;
    pthread_barrier_t begin;
    struct caller c[] = {{.s = &s, .begin = &begin}, {.s = &s, .begin = &begin}};
    pthread_t other;
    int64_t steps;
    small_open(&s, NULL);
    assert_int_equal(pthread_barrier_init(&begin, NULL, 2), 0);
    assert_int_equal(pthread_create(&other, NULL, step_often, &c[1]), 0);
    step_often(&c[0]);
    assert_int_equal(pthread_join(other, NULL), 0);
    pthread_barrier_destroy(&begin);
    assert_int_equal(c[0].wrong | c[1].wrong, 0);
    FINE(embfuse_get_steps(s.model, 0, &steps, &why));
    assert_int_equal(steps, c[0].steps + c[1].steps);
    embfuse_model_free(s.model);
}

/* In a child: models that want several threads are refused, those of one thread are not. 0: as it
 * has to be; otherwise the number of the call that was not. */
static int child_calls(struct small *s, struct embfuse_average *a) {
    const struct embfuse_options many = {.size = sizeof many, .threads = 2},
                                 one = {.size = sizeof one, .threads = 1};
    struct embfuse_admission admission = {.size = sizeof admission,
                                          .kind = EMBFUSE_ADMIT_COUNT,
                                          .threshold = 1,
                                          .counters = s->state,
                                          .num_counters = ROWS,
                                          .counter_bytes = 4};
    struct small other;
    double lr;
    if (embfuse_step(s->model, &s->batch, s->grad, NULL) != EMBFUSE_FORKED) return 1;
    if (embfuse_forward(s->model, &s->batch, s->output, NULL) != EMBFUSE_FORKED) return 2;
    if (embfuse_average_update(s->model, a, 1, NULL) != EMBFUSE_FORKED) return 3;
    if (embfuse_init_states(s->model, 1, NULL) != EMBFUSE_FORKED) return 4;
    if (embfuse_admit_ids(&admission, s->ids, EMBFUSE_INT64, 1, -1, 2, s->ids, NULL, NULL) !=
        EMBFUSE_FORKED)
        return 5;
    if (embfuse_get(s->model, 0, "lr", &lr, NULL)) return 6;
    small_open(&other, &many);
    if (embfuse_step(other.model, &other.batch, other.grad, NULL) != EMBFUSE_FORKED) return 7;
    small_open(&other, &one);
    return embfuse_step(other.model, &other.batch, other.grad, NULL) ? 8 : 0;
}

static void a_child(void **state) {
    (void)state;
    static float data[ROWS][DIM];
    const struct embfuse_options options = {.size = sizeof options, .threads = 2};
    struct embfuse_average a = {.size = sizeof a, .kind = EMBFUSE_SWA, .data = data[0]};
    struct small s;
    int status;
    small_open(&s, &options);
    FINE(embfuse_init_states(s.model, 1, &why)); /* in parallel */
    const pid_t child = fork();
    if (child == 0) {
        alarm(300); /* a call that hangs ends in a signal */
        _exit(child_calls(&s, &a));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status) fail_msg("the child ended with %x", (unsigned)status);
    FINE(embfuse_step(s.model, &s.batch, s.grad, &why));
    embfuse_model_free(s.model);
}

TESTS(threads) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_second_call),
                                       cmocka_unit_test(two_threads), cmocka_unit_test(a_child)};
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
