/* SPDX-License-Identifier: MIT */
#include "harness/workload/workload.h"
#include "tests/support/batch_builder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/forward.h"
#include "kernels/rng.h"

/* Asked by LeakSanitizer. LLVM's libomp loses a little of its own where a team grows; gcc's libgomp
 * does not, so that a leak of ours below a parallel region is still seen with gcc. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libomp.so\n";
}

static void *must(void *p) {
    if (!p) abort();
    return p;
}

/* The room, in powers of two, that an array of so many elements has. */
static int64_t room_for(int64_t count) {
    int64_t room = 1;
    while (room < count) room *= 2;
    return room;
}

/* Room for `more` beyond `count` elements. */
static void *grown(void *array, int64_t count, int64_t more, size_t size) {
    if (array && room_for(count) >= count + more) return array;
    return must(realloc(array, (size_t)room_for(count + more) * size));
}

/* A copy that ends where its last element ends. */
static void *exact_copy(const void *array, int64_t count, size_t size) {
    void *copy = must(malloc((size_t)count * size));
    if (count > 0) memcpy(copy, array, (size_t)count * size);
    return copy;
}

/* --- building */

void builder_begin(struct builder *b, uint64_t seed, bool exact) {
    *b = (struct builder){
        .seed = seed, .exact = exact, .id_type = ID_INT64, .step = 3, .smaller = 1, .gap = 1};
}

int32_t builder_table(struct builder *b, int64_t rows, int32_t dim) {
    b->shapes = grown(b->shapes, b->in.num_tables, 1, sizeof *b->shapes);
    struct table_shape *t = &b->shapes[b->in.num_tables];
    *t = (struct table_shape){.rows = rows, .dim = dim, .rule = RULE_sgd};
    return b->in.num_tables++;
}

int32_t builder_feature(struct builder *b, int32_t table, enum pooling pooling, int64_t padding) {
    int32_t f = b->in.num_features++;
    b->features = grown(b->features, f, 1, sizeof *b->features);
    b->features[f] = (struct feature){.table = table, .pooling = pooling, .padding_id = padding};
    return f;
}

void builder_bag(struct builder *b, int64_t count, const int64_t *ids) {
    struct feature *f = &b->features[b->in.num_features - 1];
    b->ids = grown(b->ids, b->in.lookups, count + 1, sizeof *b->ids);
    if (count > 0) memcpy(b->ids + b->in.lookups, ids, (size_t)count * sizeof *ids);
    b->lengths = grown(b->lengths, b->num_lengths, 1, sizeof *b->lengths);
    b->lengths[b->num_lengths++] = count;
    f->bags++;
    b->in.lookups += count;
    f->lookups += count;
}

void builder_random_bags(struct builder *b, int64_t bags, int64_t longest) {
    int32_t f = b->in.num_features - 1;
    int64_t rows = b->shapes[b->features[f].table].rows;
    int64_t *ids = must(malloc((size_t)(longest + 1) * sizeof *ids));
    for (int64_t i = 0; i < bags; i++) {
        uint64_t key = rng_key(rng_key(b->seed, 98), (uint64_t)b->num_lengths);
        int64_t length = (int64_t)(rng_unit(key, 0) * (double)(longest + 1));
        for (int64_t k = 0; k < length; k++) {
            double u = rng_unit(key, 1 + (uint64_t)k);
            ids[k] = (int64_t)(u * u * (double)rows);
        }
        builder_bag(b, length, ids);
    }
    free(ids);
}

static int64_t *make_offsets(struct builder *b) {
    int64_t *offsets = must(malloc((size_t)(b->num_lengths + 1) * sizeof *offsets));
    offsets[0] = 0;
    for (int64_t q = 0; q < b->num_lengths; q++) offsets[q + 1] = offsets[q] + b->lengths[q];
    return offsets;
}

static void *make_ids(const struct builder *b) {
    if (b->id_type == ID_INT64) return exact_copy(b->ids, b->in.lookups, sizeof *b->ids);
    int32_t *narrow = must(malloc((size_t)b->in.lookups * sizeof *narrow));
    for (int64_t i = 0; i < b->in.lookups; i++) narrow[i] = (int32_t)b->ids[i];
    return narrow;
}

/* Pooled features are columns of one matrix, the first feature's rightmost, with a gap between two;
 * sequences follow, with a gap between two rows. */
static void lay_out_grad(struct builder *b) {
    int64_t columns = 0, most = 0;
    for (int32_t f = 0; f < b->in.num_features; f++) {
        if (b->features[f].pooling == POOL_NONE) continue;
        columns += b->shapes[b->features[f].table].dim + b->gap;
        most = b->features[f].bags > most ? b->features[f].bags : most;
    }
    int64_t at = columns, next = columns * most;
    for (int32_t f = 0; f < b->in.num_features; f++) {
        struct feature *x = &b->features[f];
        int32_t dim = b->shapes[x->table].dim;
        bool sequence = x->pooling == POOL_NONE;
        x->grad_stride = sequence ? dim + b->gap : columns;
        x->grad_offset = sequence ? next : (at -= dim + b->gap);
        next += sequence ? x->lookups * x->grad_stride : 0;
    }
}

float *builder_grad(const struct builder *b, int32_t feature, int64_t r) {
    const struct feature *f = &b->features[feature];
    return b->grad + f->grad_offset + r * f->grad_stride;
}

void builder_pack(struct builder *b) {
    struct batch *in = &b->in;
    free((void *)in->grad);
    void *grad = must(malloc((size_t)(in->grad_elements * dtype_bytes(in->grad_type))));
    for (int64_t i = 0; i < in->grad_elements; i++) dtype_set(in->grad_type, grad, i, b->grad[i]);
    in->grad = grad;
}

static float grad_value(const struct builder *b, uint64_t key, int64_t d) {
    uint32_t z = (uint32_t)rng_u64(key, (uint64_t)d);
    if (b->exact) return (float)((int32_t)((z >> 16) * 9 >> 16) - 4) * 0x1p-6f;
    return ((float)(z >> 8) * 0x1p-23f - 1.0f) / (float)(1 << (z & 7));
}

static void fill_grad(struct builder *b) {
    for (int64_t i = 0; i < b->in.grad_elements; i++) b->grad[i] = NAN;
    for (int64_t k = 0; k < b->index.lookups; k++) {
        const struct row_lookup *l = &b->index.lookup[k];
        const struct feature *x = feature_at_bag(&b->in, l->bag);
        const int32_t f = (int32_t)(x - b->features);
        int64_t r = l->bag - x->first_bag;
        if (x->pooling == POOL_NONE) r = l->lookup - x->first_lookup;
        float *row = builder_grad(b, f, r);
        uint64_t key = rng_key(rng_key(b->seed, (uint64_t)f), (uint64_t)r);
        for (int32_t d = 0; d < b->shapes[l->table].dim; d++) row[d] = grad_value(b, key, d);
    }
}

static float *make_weights(const struct builder *b) {
    static const float weights[] = {-1, 0, 0.5f, 1, 2};
    float *w = must(malloc((size_t)b->in.lookups * sizeof *w));
    for (int64_t i = 0; i < b->in.lookups; i++) {
        uint32_t z = (uint32_t)rng_u64(rng_key(b->seed, 99), (uint64_t)i);
        w[i] = b->exact ? weights[z % 5] : (float)(z >> 8) * 0x1p-23f - 0.75f;
    }
    return w;
}

int32_t *builder_winners(const struct builder *b, int32_t feature, int64_t bag) {
    return (int32_t *)b->in.winners + forward_row(&b->features[feature], bag);
}

/* Winners of the bags of a feature, drawn among the lookups that count. */
static void draw_winners(const struct builder *b, int32_t f) {
    const struct feature *x = &b->features[f];
    for (int64_t bag = 0; bag < x->bags; bag++) {
        const int64_t *ends = b->in.offsets + x->first_bag + bag;
        const uint64_t key = rng_key(rng_key(b->seed, 97), (uint64_t)(x->first_bag + bag));
        int64_t counted = 0;
        for (int64_t i = ends[0]; i < ends[1]; i++) counted += b->ids[i] != x->padding_id;
        for (int32_t d = 0; d < b->shapes[x->table].dim; d++) {
            int64_t nth = (int64_t)(rng_unit(key, (uint64_t)d) * (double)counted), i = ends[0];
            while (counted && (b->ids[i] == x->padding_id || nth-- > 0)) i++;
            builder_winners(b, f, bag)[d] = counted ? (int32_t)(i - ends[0]) : NO_WINNER;
        }
    }
}

/* Between the rows of winners lie numbers that could be right. */
static void make_winners(struct builder *b) {
    if (!has_pooling(&b->in, POOL_MAX)) return;
    b->in.winners = must(calloc((size_t)b->in.grad_elements, sizeof *b->in.winners));
    for (int32_t f = 0; f < b->in.num_features; f++)
        if (b->features[f].pooling == POOL_MAX) draw_winners(b, f);
}

/* The divisor of a bag. */
static int64_t divisor(const struct builder *b, int64_t q) {
    const struct feature *f = feature_at_bag(&b->in, q);
    int64_t n = 0;
    if (f->pooling != POOL_MEAN) return 1;
    for (int64_t i = b->in.offsets[q]; i < b->in.offsets[q + 1]; i++)
        n += b->ids[i] != f->padding_id;
    return n ? n : 1;
}

/* All summands are whole multiples of one unit, and those of a row add up to less than 2^24. */
void builder_recount(struct builder *b) {
    int64_t flat = b->in.flat_bags, longest = 1;
    double *scale = must(malloc((size_t)(flat + 1) * sizeof *scale));
    b->sums_exact = b->exact;
    for (int64_t q = 0; q < flat; q++) {
        int64_t n = divisor(b, q);
        scale[q] = 1.0 / (double)n;
        longest = n > longest ? n : longest;
        b->sums_exact &= (n & (n - 1)) == 0;
    }
    double unit = 0x1p-7 / (double)longest;
    for (int64_t u = 0; b->sums_exact && u < b->index.rows; u++) {
        int32_t dim = b->shapes[b->index.run[u].table].dim;
        for (int32_t d = 0; d < dim; d++) {
            double sum = 0;
            for (int64_t k = b->index.run[u].first; k < b->index.run[u + 1].first; k++) {
                const struct row_lookup *l = &b->index.lookup[k];
                const struct feature *x = feature_at_bag(&b->in, l->bag);
                const int32_t f = (int32_t)(x - b->features);
                const bool none = x->pooling == POOL_NONE;
                int64_t r = none ? l->lookup - x->first_lookup : l->bag - x->first_bag;
                double w = b->in.lookup_weights ? b->in.lookup_weights[l->lookup] : 1;
                double units = w * scale[l->bag] * builder_grad(b, f, r)[d] / unit;
                b->sums_exact &= units == rint(units);
                sum += fabs(units);
            }
            b->sums_exact &= sum < 0x1p24;
        }
    }
    free(scale);
}

void builder_finish(struct builder *b) {
    struct batch *in = &b->in;
    in->offsets = make_offsets(b);
    in->id_type = b->id_type;
    in->ids = make_ids(b);
    lay_out_grad(b);
    struct table_shape *shapes = exact_copy(b->shapes, in->num_tables, sizeof *shapes);
    struct feature *features = exact_copy(b->features, in->num_features, sizeof *features);
    free(b->shapes);
    free(b->features);
    b->shapes = shapes;
    b->features = features;
    batch_derive(in, shapes, features);
    b->grad = must(malloc((size_t)in->grad_elements * sizeof *b->grad));
    in->lookup_weights = b->weighted ? make_weights(b) : NULL;
    b->index = row_index_build(in);
    make_winners(b);
    fill_grad(b);
    builder_pack(b);
    builder_recount(b);
    b->rules = must(calloc((size_t)in->num_tables, sizeof *b->rules));
    for (int32_t t = 0; t < in->num_tables; t++) builder_rule(b, t, RULE_sgd);
}

void builder_free(struct builder *b) {
    tables_free(&b->tables);
    tables_free(&b->before);
    row_index_free(&b->index);
    free((void *)b->in.offsets);
    free((void *)b->in.ids);
    free((void *)b->in.grad);
    free((void *)b->in.winners);
    free(b->grad);
    free((void *)b->in.lookup_weights);
    free(b->shapes);
    free(b->features);
    free(b->rules);
    free(b->ids);
    free(b->lengths);
    *b = (struct builder){0};
}

void builder_rule(struct builder *b, int32_t t, enum rule_kind kind) {
    tables_free(&b->tables);
    tables_free(&b->before);
    b->shapes[t].rule = kind;
    b->shapes[t].adjusts = false;
    b->rules[t] = rule_default(kind);
    /* Another table's rate is visibly wrong. */
    b->rules[t].param[RULE_LR] *= 1.0f + 0.25f * (float)(t % 5);
    builder_set(&b->rules[t], "eps", 0x1p-9f);
    builder_set(&b->rules[t], "weight_decay", 0x1p-5f);
    builder_set(&b->rules[t], "dampening", 0x1p-3f);
    builder_set(&b->rules[t], "lr_decay", 0x1p-4f);
    /* Tables go through the combinations of the rule's flags. */
    const struct rule_info info = rule_info(kind);
    for (int k = 0, flags = 0; k < info.num_params; k++)
        if (info.params[k].flag) b->rules[t].param[k] = (float)((t >> flags++) & 1);
}

bool builder_moves(struct rule rule, float all) {
    enum { FLOATS = TABLE_ARRAYS * RULE_ROW_STATES };
    float x[FLOATS], before[FLOATS];
    float g = 0;
    const struct rule_step step = rule_step(rule, 2);
    struct row_memory row;
    for (int k = 0; k < FLOATS; k++) x[k] = all;
    for (int a = 0; a < TABLE_ARRAYS; a++) row.array[a] = &x[a * RULE_ROW_STATES];
    memcpy(before, x, sizeof x);
    rule_apply(&step, &row, 1, &g);
    return memcmp(before, x, sizeof x) != 0;
}

/* With a sanitizer, which is slow, only the sums over a row count: they are what threads do
 * together. */
static bool alike(enum rule_kind a, enum rule_kind b) {
    if (!rule_sums_before(a) != !rule_sums_before(b) || !rule_sums_after(a) != !rule_sums_after(b))
        return false;
    return WITH_SANITIZER || (rule_elem_states(a) == rule_elem_states(b) &&
                              rule_row_states(a) == rule_row_states(b) &&
                              rule_idle_is_identity(a) == rule_idle_is_identity(b));
}

bool builder_distinct(const struct kernel *k, int rule) {
    for (int r = 0; r < rule; r++)
        if (kernel_applies(k, (enum rule_kind)r) && alike((enum rule_kind)r, (enum rule_kind)rule))
            return false;
    return kernel_applies(k, (enum rule_kind)rule);
}

void builder_set(struct rule *rule, const char *name, float value) {
    const struct rule_info info = rule_info(rule->kind);
    for (int k = 0; k < info.num_params; k++)
        if (strcmp(info.params[k].name, name) == 0) rule->param[k] = value;
}

void builder_adjust(struct builder *b, int32_t t, const float shared[RULE_SHARED]) {
    struct rule *rule = &b->rules[t];
    const struct rule_info info = rule_info(rule->kind);
    for (int k = 0; k < RULE_SHARED; k++)
        if (rule_hyper(&info, RULE_PARAMS + k).name) rule->shared[k] = shared[k];
    b->shapes[t].adjusts = rule_adjusts(rule);
}

void builder_rules(struct builder *b, const struct kernel *k, enum rule_kind first) {
    for (int32_t t = 0; t < b->in.num_tables; t++) {
        enum rule_kind kind = (enum rule_kind)(((int)first + t) % RULE_COUNT);
        builder_rule(b, t, kernel_applies(k, (enum rule_kind)kind) ? kind : first);
    }
}

void builder_storage(struct builder *b, const struct kernel *k, int first) {
    tables_free(&b->tables);
    tables_free(&b->before);
    for (int32_t t = 0; t < b->in.num_tables; t++) {
        const int way = (first + t) % STORAGES, others = way / DTYPE_COUNT;
        b->shapes[t].weight_type = (enum dtype)(way % DTYPE_COUNT);
        b->shapes[t].row_state = (enum row_state)(others % 3);
        b->shapes[t].momentum_type = (enum dtype)(others / 3 % 2);
        b->shapes[t].rounding = (enum rounding)(others / 6);
        b->shapes[t].rounding_key = rng_key(b->seed, (uint64_t)t);
    }
    b->in.grad_type = (enum dtype)(first % (FP16 + 1));
    for (int32_t t = 0; t < b->in.num_tables && kernel_refuses(k, &b->in); t++)
        b->shapes[t].weight_type = FP32;
}
