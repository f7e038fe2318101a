/* SPDX-License-Identifier: MIT */
#include "tests/support/output_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness/measure/runner.h"
#include "tests/support/cmocka_cases.h"
#include "tests/support/device_case.h"

int output_run(struct builder *b, const struct kernel *k, int way, void *output, char text[400]) {
    struct error err = {""};
    struct check_result result = {0};
    struct place_scratch scratch = {0}, out = {0};
    struct place_setup setup = {.shapes = b->in.tables,
                                .num_tables = b->in.num_tables,
                                .batches = &b->in,
                                .index = &b->index,
                                .ring = 1,
                                .threads = k->place == ON_HOST ? way : 1,
                                .seed = b->seed,
                                .weight_grad = true,
                                .tables = &b->tables};
    const struct check c = {.in = &b->in,
                            .index = &b->index,
                            .rules = b->rules,
                            .step = 1,
                            .before = tables_copy_row,
                            .before_ctx = &b->before,
                            .exact = b->sums_exact};
    struct rule_step *steps = malloc((size_t)b->in.num_tables * sizeof *steps);
    for (int32_t t = 0; t < b->in.num_tables; t++) steps[t] = rule_step(b->rules[t], 1);
    struct place *p = place_open(k->place, &setup, &err);
    if (!p) fail_msg("%s", err.text);
    const bool step = k->operation == OP_STEP;
    const struct place_job job = {.kernel = k,
                                  .steps = steps,
                                  .scratch = &scratch,
                                  .output = step ? NULL : &out,
                                  .weight_grad = step ? &out : NULL};
    if (runner_scratch_open(p, k, &scratch, &err) ||
        runner_output_open(p, &setup, k->operation, &out, &err) ||
        runner_weight_grad_open(p, &setup, k->operation, &out, &err))
        fail_msg("%s", err.text);
    device_case_schedule(k, way);
    int status = runner_step(p, &job, POISON, &err);
    if (status == 0) status = runner_check(p, &job, c, &result, &err);
    if (output && p->ops->scratch_get(p, &out, output, &err)) fail_msg("%s", err.text);
    if (!p->ops->tables(p) && place_get_tables(p, &b->tables, &err)) fail_msg("%s", err.text);
    snprintf(text, 400, "%.390s", status > 0 && result.message[0] ? result.message : err.text);
    p->ops->scratch_close(p, &scratch);
    p->ops->scratch_close(p, &out);
    p->ops->close(p);
    free(steps);
    return status;
}
