/* SPDX-License-Identifier: MIT */
#include "extras/tiers/study/stream.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/memory.h"
#include "kernels/rules.h"

int open_stream(struct stream *s, const char *text, const char *trace, struct error *err) {
    struct spec_list list;
    const struct spec_overrides none = {0};
    if (spec_parse("SPEC", text, strlen(text), &none, &list, err)) return -1;
    const struct spec *spec = &list.specs[0];
    const int status = strcmp(trace, "-")
                           ? workload_from_trace(trace, spec, spec->batch, s->batches, GRAD_EXACT,
                                                 &s->workload, err)
                           : workload_generate(spec, s->batches, GRAD_EXACT, &s->workload, err);
    spec_list_free(&list);
    if (status) return -1;
    const struct workload *w = &s->workload;
    if (w->ring < 2) return fail(err, "%s: fewer than 2 batches", trace);
    s->batches = w->ring; /* a short trace has fewer */
    s->warm = s->batches / 2;
    s->index = must_have(calloc((size_t)s->batches, sizeof *s->index));
    s->rules = must_have(calloc((size_t)(s->batches * w->num_tables), sizeof *s->rules));
    for (int b = 0; b < s->batches; b++) {
        s->index[b] = row_index_build(&w->batches[b]);
        for (int32_t t = 0; t < w->num_tables; t++)
            s->rules[b * w->num_tables + t] = rule_step(workload_rule(w, t), b + 1);
    }
    s->setup = (struct place_setup){.shapes = w->tables,
                                    .num_tables = w->num_tables,
                                    .batches = w->batches,
                                    .index = s->index,
                                    .ring = s->batches,
                                    .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                                    .seed = w->seed};
    return 0;
}

void close_stream(struct stream *s) {
    for (int b = 0; s->index && b < s->batches; b++) row_index_free(&s->index[b]);
    free(s->index);
    free(s->rules);
    workload_free(&s->workload);
}
