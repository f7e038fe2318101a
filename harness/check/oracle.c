/* SPDX-License-Identifier: MIT */
#include "harness/check/oracle.h"

#include "kernels/shape.h"
#include "oracle_files.h" /* generated: #include "harness/check/rules/sgd.h" ... */

/* A lookup adds c times the elements of `feature` from `at` on to its row. */
struct addend {
    const struct feature *feature;
    int64_t at, position; /* position: of the lookup in its bag */
    double w, c;          /* per-sample weight; the same over the length of the bag, for a mean */
    int64_t length;       /* of the bag without padding; 1 unless it is for a mean */
};

static struct addend addend_of(const struct batch *in, struct row_lookup lookup) {
    const int64_t i = lookup.lookup, q = lookup.bag;
    const struct feature *x = feature_at_bag(in, q);
    const double w = in->lookup_weights ? in->lookup_weights[i] : 1.0;
    int64_t r = q - x->first_bag, length = 0; /* r: gradient row within the feature */
    if (x->pooling == POOL_NONE) r = i - x->first_lookup;
    for (int64_t j = in->offsets[q]; x->pooling == POOL_MEAN && j < in->offsets[q + 1]; j++)
        length += batch_id(in, j) != x->padding_id;
    length = length ? length : 1;
    return (struct addend){
        x, x->grad_offset + r * x->grad_stride, i - in->offsets[q], w, w / (double)length, length};
}

static double gradient_of(const struct batch *in, const struct addend *p, int32_t d) {
    const bool won = p->feature->pooling != POOL_MAX || in->winners[p->at + d] == p->position;
    return won ? oracle_element(in->grad_type, in->grad, p->at + d) : 0;
}

/* The largest power of 2 of which x is a multiple. */
static double lowest_bit(double x) {
    int exponent;
    const double mantissa = frexp(fabs(x), &exponent);
    const int zeros = __builtin_ctzll((unsigned long long)ldexp(mantissa, 53));
    return ldexp(1, exponent - 53 + zeros);
}

/* True if single precision gives the same sum of column d in every order: all products are floats and multiples of
 * one power of 2, and the sum of their sizes is at most 2^24 times that power. */
static bool order_is_free(const struct batch *in, const struct row_lookup *lookups, int64_t count,
                          int32_t d) {
    double least = INFINITY, all = 0;
    for (int64_t k = 0; k < count; k++) {
        const struct addend p = addend_of(in, lookups[k]);
        const double term = p.c * gradient_of(in, &p, d);
        if (term == 0) continue;
        if ((float)term != term || (p.length & (p.length - 1)) != 0) return false;
        least = lesser(least, lowest_bit(term));
        all += fabs(term);
    }
    return all <= 0x1p24 * least;
}

void oracle_sum(const struct batch *in, const struct row_lookup *lookups, int64_t count, bool exact,
                int32_t dim, struct num *grad) {
    const double relative = (double)(count + 3) * unit * 1.001;
    for (int32_t d = 0; d < dim; d++) grad[d] = exactly(0);
    for (int64_t k = 0; k < count; k++) {
        const struct addend p = addend_of(in, lookups[k]);
        for (int32_t d = 0; d < dim; d++) {
            const double g = gradient_of(in, &p, d), term = p.c * g;
            if (term == 0) continue;
            grad[d].value += term;
            grad[d].error += relative * fabs(term) + tiny * (fabs(p.w) + fabs(g) + 1);
        }
    }
    for (int32_t d = 0; d < dim; d++) {
        if (!(grad[d].error / relative < FLT_MAX)) grad[d].error = INFINITY; /* >= sum|c g| */
        if (exact) grad[d].error = 0;
    }
}

void oracle_cancel(const struct batch *in, const struct row_lookup *lookups, int64_t count,
                   int32_t dim, struct num *grad) {
    for (int32_t d = 0; d < dim; d++)
        if (grad[d].value == 0 && grad[d].error > 0 && order_is_free(in, lookups, count, d))
            grad[d].error = 0;
}

void oracle_update_per_lookup(const struct rule *r, int64_t count, int32_t dim, const struct num *g,
                              struct oracle_row *x) {
    const double flushed = 3 * 0x1p-126; /* two terms and their sum */
    const double lr = r->param[RULE_LR], growth = expm1((double)count * log1p(unit));
    for (int32_t d = 0; d < dim; d++) {
        double all = g[d].error / ((double)(count + 3) * unit); /* >= sum|g| */
        double largest = fabs(x->weight[d].value) + x->weight[d].error + fabs(lr) * all;
        x->weight[d] = sub(x->weight[d], mul(exactly(lr), g[d]));
        x->weight[d].error +=
            growth * (largest + x->weight[d].error) + (1 + growth) * (double)count * flushed;
    }
}

/* The factor that shortens a row of this sum of squares to `most`: min(1, most/norm). */
static struct num shortening(const struct total *squares, int32_t dim, double most) {
    const struct num norm = root(total_of(squares, dim));
    const double low = greater(norm.value - norm.error, most);
    return rounded(lesser(1, most / norm.value), norm.error * most / (low * low));
}

/* Adjusts the gradient and the weights as kernels/adjust.h says. */
static void adjust(const struct rule *rule, int32_t dim, struct num *g, struct num *w) {
    const float *x = rule->shared, clip = x[CLIP_VALUE];
    const struct num decay = exactly(x[WEIGHT_DECAY]);
    const bool decoupled = x[DECOUPLED_WEIGHT_DECAY] != 0, decays = decay.value > 0;
    struct total squares = {0, 0, 0};
    for (int32_t d = 0; d < dim; d++) {
        if (x[GRAD_SCALE] != 0) g[d] = mul(exactly(x[GRAD_SCALE]), g[d]);
        if (x[MAXIMIZE] != 0) g[d].value = -g[d].value;
        if (clip > 0) g[d].value = greater(-clip, lesser(clip, g[d].value));
        if (clip > 0) g[d].error = lesser(g[d].error, clip + fabs(g[d].value));
        total_add(&squares, mul(g[d], g[d]));
    }
    const struct num factor = shortening(&squares, dim, x[CLIP_NORM]);
    const struct num keep = sub(exactly(1), mul(exactly(rule->param[RULE_LR]), decay));
    for (int32_t d = 0; d < dim; d++) {
        if (x[CLIP_NORM] > 0) g[d] = mul(factor, g[d]);
        if (decays && decoupled) w[d] = mul(keep, w[d]);
        if (decays && !decoupled) g[d] = add(g[d], mul(decay, w[d]));
    }
}

void oracle_update(const struct rule *rule, int64_t t, int32_t dim, struct num *grad,
                   struct oracle_row *row) {
    const struct rule_case c = {rule->param, t, dim, grad};
    adjust(rule, dim, grad, row->weight);
    switch (rule->kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: rule(&c, row); break;
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

bool oracle_keeps_idle(const struct rule *rule) {
    struct num memory[TABLE_ARRAYS][RULE_ROW_STATES], grad = exactly(0);
    struct oracle_row row;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        row.array[a] = memory[a];
        for (int k = 0; k < RULE_ROW_STATES; k++) memory[a][k] = exactly(0.5);
    }
    oracle_update(rule, 1, 1, &grad, &row);
    bool keeps = true;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        for (int k = 0; k < RULE_ROW_STATES; k++) keeps &= memory[a][k].value == 0.5;
    return keeps;
}

/* Element types: bits of the mantissa without its leading one, exponent of the smallest normal
 * number, and the largest number. */
static const struct {
    int mantissa, least;
    double most;
} formats[DTYPE_COUNT] = {[FP32] = {23, -126, FLT_MAX},
                          [BF16] = {7, -126, 0x1.fep127},
                          [FP16] = {10, -14, 65504},
                          [FP8] = {3, -6, 448}};

double oracle_rounding(enum dtype type, enum rounding how, double size) {
    const int nearest = how == ROUND_NEAREST;
    return ldexp(size, -formats[type].mantissa - nearest) +
           ldexp(1, formats[type].least - formats[type].mantissa - nearest);
}

/* Values of at least this size may be rounded to infinity. */
static double largest(enum dtype type, enum rounding how) {
    if (type == FP8) return INFINITY; /* saturates */
    const double place = ldexp(1, ilogb(formats[type].most) - formats[type].mantissa);
    return how == ROUND_NEAREST ? formats[type].most + place / 2
                                : nextafter(formats[type].most, INFINITY);
}

void oracle_store(const struct table_shape *t, struct oracle_row *row) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const enum dtype type = table_array_type(t, a);
        if (type == FP32) continue;
        for (int64_t d = 0; d < rule_array_width(t->rule, t->dim, a); d++) {
            struct num *x = &row->array[a][d];
            if (!isfinite(x->error)) continue;
            if (type == FP8)
                x->value = greater(-formats[type].most, lesser(formats[type].most, x->value));
            const double most = fabs(x->value) + x->error, end = largest(type, t->rounding);
            x->error += oracle_rounding(type, t->rounding, lesser(most, formats[type].most));
            if (!(most < end)) x->error = NAN;
        }
    }
}

float oracle_narrow(enum dtype type, enum rounding how, uint32_t word, float value) {
    if (type == FP32) return value;
    if (!isfinite(value)) return type == FP8 ? NAN : value;
    const int exponent = value == 0 ? formats[type].least : ilogbf(value);
    const double place =
        ldexp(1, (exponent > formats[type].least ? exponent : formats[type].least) -
                     formats[type].mantissa);
    const double places = fabs(value) / place, lower = floor(places), rest = places - lower;
    const bool tie_up = rest == 0.5 && fmod(lower, 2) == 1;
    const bool up = how == ROUND_STOCHASTIC ? floor(rest * 0x1p31) + (word >> 1) >= 0x1p31
                                            : rest > 0.5 || tie_up;
    double rounded = (lower + up) * place;
    if (rounded > formats[type].most) rounded = type == FP8 ? formats[type].most : INFINITY;
    return (float)copysign(rounded, value);
}

void oracle_round(const struct table_shape *t, int64_t step, int64_t row,
                  const struct row_memory *m) {
    const int64_t whole = t->part.row + row * (1 + t->part.row_skip);
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const uint64_t stream = rng_key(t->rounding_key, (uint64_t)(step * TABLE_ARRAYS + a));
        const uint32_t words = (uint32_t)rng_key(stream, (uint64_t)whole);
        for (int64_t d = 0; d < rule_array_width(t->rule, t->dim, a); d++)
            m->array[a][d] = oracle_narrow(table_array_type(t, a), t->rounding,
                                           rng_u32(words, (uint32_t)d), m->array[a][d]);
    }
}

float oracle_element(enum dtype type, const void *array, int64_t i) {
    if (type == FP32) return ((const float *)array)[i];
    const int mantissa = formats[type].mantissa, width = type == FP8 ? 7 : 15;
    const int code = type == FP8 ? ((const uint8_t *)array)[i] : ((const uint16_t *)array)[i];
    const int fraction = code & ((1 << mantissa) - 1), top = (1 << (width - mantissa)) - 1;
    const int exponent = code >> mantissa & top;
    const float sign = code >> width ? -1 : 1;
    if (type == FP8 ? (code & 0x7f) == 0x7f : exponent == top)
        return type == FP8 || fraction ? NAN : sign * INFINITY;
    const int power = formats[type].least - mantissa + (exponent > 1 ? exponent - 1 : 0);
    return sign * ldexpf((float)(exponent ? fraction + (1 << mantissa) : fraction), power);
}
