/* SPDX-License-Identifier: MIT
 *
 * Ranks whose tables lie on devices: processes under mpirun, each with an emulated device. With every
 * sharding they take steps alone and iterations, also with narrow gradients, in three ways: on the
 * host; on devices, with rows that travel through host memory; on devices, with rows that travel
 * between them by NCCL's stand-in. Every result is judged. All three ways must give the same bits
 * where sums are exact, and must move the same number of bytes on every rank and channel. Rank 0
 * prints a line for each sharding.
 * extras/ranks/tests/test_ranks_device_mpi.py starts it. Exit status: 0 fine, 2 a wrong result.
 */
#include <stdlib.h>
#include <string.h>

#include "emulation/emulation.h"
#include "harness/device/device_rows.h"
#include "harness/measure/runner.h"
#include "harness/registry.h"
#include "kernels/forward.h"
#include "extras/ranks/place_ranks.h"
#include "extras/ranks/program.h"
#include "extras/ranks/tests/ranks_case.h"

enum way { HOST, STAGED, BY_NCCL, NUM_WAYS };

static const char *const way_names[NUM_WAYS] = {"host", "through host memory", "NCCL"};

struct cut {
    const char *sharding;
    bool all_rows, columns, overlap;
};

static const struct cut cuts[] = {{"table"},
                                  {"row"},
                                  {"row", .all_rows = true},
                                  {"row-modulo"},
                                  {"column", .columns = true},
                                  {"table-row"},
                                  {"data"},
                                  {"data-dense"},
                                  {"row,data,table", .overlap = true},
                                  {"column,row-modulo,data", .columns = true, .overlap = true},
                                  {"row", .overlap = true}};

/* One run, and what it leaves. The batch is the second one of its ring. */
struct work {
    struct builder *b, *first;
    const struct cut *cut;
    enum way way;
    bool iteration;
    void *tables[NUM_WAYS], *output[NUM_WAYS];
    size_t bytes, output_bytes;
    struct transport_bytes moved[NUM_WAYS][CHANNELS];
};

/* --- Does NCCL move rows? */

static int opened;

static int open_counted(struct transport *t, struct error *err) {
    opened++;
    return transport_nccl_open(t, err);
}

/* --- kernels must move rows within device memory: emulated ones could also reach host memory */

int __real_device_rows_move(void *stream, struct device_buffer *list,
                            const struct row_block *blocks, int32_t count, int64_t element,
                            struct error *err);
int __wrap_device_rows_move(void *stream, struct device_buffer *list,
                            const struct row_block *blocks, int32_t count, int64_t element,
                            struct error *err);

static bool on_device(const struct row_block *b, int64_t element) {
    const size_t row = (size_t)(b->columns * element);
    const size_t behind = (size_t)(b->count - 1);
    const size_t array = b->row ? row : behind * (size_t)b->array_stride + row;
    const size_t message =
        behind * (size_t)b->message_stride + (size_t)b->columns * (size_t)element;
    return emulation_holds(b->array + (b->row ? 0 : b->first * b->array_stride), array) &&
           (!b->row || emulation_holds(b->row, (size_t)b->count * sizeof *b->row)) &&
           (b->how == ROWS_CLEAR || emulation_holds(b->message, message));
}

int __wrap_device_rows_move(void *stream, struct device_buffer *list,
                            const struct row_block *blocks, int32_t count, int64_t element,
                            struct error *err) {
    for (int32_t k = 0; k < count; k++)
        if (!on_device(&blocks[k], element))
            return (fail)(err, "block %d of %d is not in device memory", k, count);
    return __real_device_rows_move(stream, list, blocks, count, element, err);
}

/* --- rank 0 */

static void build(struct builder *b, const struct kernel *k, const struct cut *cut, bool weighted,
                  enum dtype gradients, uint64_t seed) {
    builder_begin(b, seed, !weighted);
    b->weighted = weighted;
    ranks_case(b, 31, POOL_MEAN, 5, 5);
    builder_rules(b, k, cut->columns ? RULE_adagrad : RULE_rowwise_adagrad);
    for (int32_t t = 0; cut->columns && t < b->in.num_tables; t++) builder_rule(b, t, RULE_adagrad);
    b->step = 3;
    b->in.grad_type = gradients;
    builder_pack(b);
    builder_recount(b);
    builder_start(b);
}

static int lead(void *ctx, struct transport *t, struct error *err) {
    struct work *w = ctx;
    struct builder *b = w->b;
    const enum backend backend = w->way == HOST ? ON_HOST : ON_DEVICE;
    const struct kernel *step =
        registry_find(OP_STEP, w->way == HOST ? "cpu_fused" : "cuda_fused_planned", err);
    const struct kernel *lookup =
        registry_find(OP_FORWARD, w->way == HOST ? "cpu_lookup" : "cuda_lookup", err);
    const struct ranks_options options = {.sharding = w->cut->sharding,
                                          .all_rows = w->cut->all_rows,
                                          .overlap = w->cut->overlap,
                                          .staged = w->way == STAGED};
    const struct place_setup setup = {.shapes = b->in.tables,
                                      .num_tables = b->in.num_tables,
                                      .batches = (struct batch[]){w->first->in, b->in},
                                      .index = (struct row_index[]){w->first->index, b->index},
                                      .ring = 2,
                                      .threads = 1,
                                      .seed = b->seed,
                                      .operation = OP_STEP};
    const struct table_set before = {
        .count = b->in.num_tables, .shapes = b->in.tables, .seed = b->seed};
    struct place *p = step && lookup ? place_ranks_open(t, &options, backend, &setup, err) : NULL;
    if (!p) return -1;
    struct ranks_trial trial = {.kernel = step,
                                .forward = w->iteration ? lookup : NULL,
                                .batch = 1,
                                .before = tables_initial_row,
                                .before_ctx = &before};
    const int status = ranks_try(&trial, p, &setup, b, err);
    if (status == 0) w->tables[w->way] = builder_snapshot(b, &w->bytes);
    w->output[w->way] = trial.output;
    w->output_bytes = trial.output_bytes;
    p->ops->close(p);
    return status;
}

/* --- all ranks */

static int same_bits(const struct work *w, struct error *err) {
    for (int a = STAGED; a < NUM_WAYS; a++) {
        const bool exact = w->b->sums_exact || a == BY_NCCL;
        const int b = w->b->sums_exact ? HOST : STAGED;
        if (exact && memcmp(w->tables[a], w->tables[b], w->bytes))
            return (fail)(err, "'%s' and '%s' give different rows", way_names[a], way_names[b]);
        if (w->iteration && memcmp(w->output[a], w->output[HOST], w->output_bytes))
            return (fail)(err, "%s: other outputs than on the host", way_names[a]);
    }
    return 0;
}

static int same_bytes(const struct work *w, const struct transport *t, struct error *err) {
    for (int a = STAGED; a < NUM_WAYS; a++)
        for (int c = CHANNEL_LENGTHS; c <= CHANNEL_GRADIENT; c++)
            if (memcmp(&w->moved[a][c], &w->moved[HOST][c], sizeof w->moved[a][c]))
                return (fail)(err, "%s, channel %d: rank %d sends %lld bytes, on the host %lld",
                              way_names[a], c, t->rank, (long long)w->moved[a][c].sent,
                              (long long)w->moved[HOST][c].sent);
    return opened == 1 ? 0 : (fail)(err, "rank %d: NCCL was opened %d times", t->rank, opened);
}

static int run_way(struct work *w, struct transport *t, struct error *err) {
    struct transport_bytes before[CHANNELS];
    char wrong[1024] = "";
    memcpy(before, t->bytes, sizeof before);
    const int status = ranks_live(t, lead, w, wrong, sizeof wrong);
    for (int c = 0; c < CHANNELS; c++) {
        const struct transport_bytes *now = &t->bytes[c];
        w->moved[w->way][c] = (struct transport_bytes){
            now->sent - before[c].sent, now->received - before[c].received,
            now->kept - before[c].kept, now->messages - before[c].messages};
    }
    return status ? (fail)(err, "%s: %.400s", way_names[w->way], wrong) : 0;
}

/* Returns what all ranks agree on. */
static int run_cut(const struct cut *cut, bool iteration, bool weighted, enum dtype gradients,
                   struct transport *t, struct error *err) {
    struct builder b, first;
    struct work w = {.b = &b, .first = &first, .cut = cut, .iteration = iteration};
    int status = 0;
    const struct kernel *k = registry_find(OP_STEP, "cuda_fused_planned", err);
    if (t->rank == 0) {
        build(&b, k, cut, weighted, gradients, 22);
        build(&first, k, cut, weighted, gradients, 21);
    }
    for (w.way = HOST; w.way < NUM_WAYS && status == 0; w.way++)
        status = transport_agree(t, run_way(&w, t, err), err);
    if (status == 0) status = same_bytes(&w, t, err);
    if (status == 0 && t->rank == 0) status = same_bits(&w, err);
    status = transport_agree(t, status, err);
    for (int a = 0; a < NUM_WAYS; a++) {
        free(w.tables[a]);
        free(w.output[a]);
    }
    if (t->rank == 0) {
        builder_free(&b);
        builder_free(&first);
    }
    return status;
}

int main(int argc, char **argv) {
    struct transport *t = program_open(&argc, &argv);
    struct error err;
    int status = 0;
    if (!t) return 1;
    t->open_device = open_counted;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts && status == 0; i++) {
        /* Outputs narrower than fp32 are not summed over ranks. */
        const bool narrow_outputs = !strstr(cuts[i].sharding, "row");
        const int even = i % 2;
        status = run_cut(&cuts[i], false, even, FP32, t, &err);
        if (status == 0) status = run_cut(&cuts[i], true, !even, FP32, t, &err);
        if (status == 0) status = run_cut(&cuts[i], narrow_outputs, false, BF16, t, &err);
        if (t->rank == 0)
            printf("%s%s%s, %d ranks: %s\n", cuts[i].sharding, cuts[i].all_rows ? ", all rows" : "",
                   cuts[i].overlap ? ", overlap" : "", t->ranks, status ? err.text : "right");
    }
    program_close(t);
    return status ? 2 : 0;
}
