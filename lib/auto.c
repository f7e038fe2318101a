/* SPDX-License-Identifier: MIT
 *
 * Which kernel `auto` takes. On a CPU that is a rule from the recorded sweeps (make sweep): about 110 points over
 * row width, pooling factor, skew, rows, tables and threads, each with all CPU kernels.
 *
 *   always cpu_fused, except in one cell:
 *   cpu_dense on one thread, if bags are short, rows of medium width, the gradient of all rows is small, and
 *   there are at least as many lookups as rows.
 *
 * In that cell an index costs more than it saves: few lookups share the gradient of a bag, and cpu_dense
 * adds each to a gradient that stays in the caches. cpu_dense sweeps all rows, which is the lazy step only
 * if the rule keeps idle rows.
 *
 * Beside the fastest kernel of each point, auto is at worst 0.945 as fast on Zen 5 (cpu_fused alone: 0.897),
 * and 0.864 on Granite Rapids (0.785), where 2 of 110 points are below 0.9: there cpu_dense wins on two
 * threads or tiny tables, where it loses by 20 to 30 % on Zen 5. tests/library/test_auto.py computes these figures.
 *
 * For a forward, and on a device, auto has one kernel each. No kernel has been measured on a device.
 */
#include "harness/registry.h"
#include "kernels/rules.h"
#include "kernels/shape.h"
#include "lib/model.h"

enum {
    SHORT_BAG = 4, /* lookups of a bag, on average */
    NARROW = 16,
    WIDE = 96,              /* elements of all rows are within these */
    LITTLE_DENSE = 1 << 19, /* bytes of the gradient of all rows */
    MOST_DENSE = 1 << 24,
};

static bool dense_is_faster(const struct embfuse_model *m, const struct batch *in) {
    int64_t bytes = 0;
    if (m->threads > 1 || is_watching(m) || in->lookups > SHORT_BAG * in->bags * in->num_features)
        return false;
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct table_shape *x = &in->tables[t];
        if (x->dim < NARROW || x->dim > WIDE || !rule_keeps_idle(&m->rules[t])) return false;
        if (x->rows > MOST_DENSE) return false;
        bytes += x->rows * x->dim * (int64_t)sizeof(float);
    }
    return bytes >= LITTLE_DENSE && bytes <= MOST_DENSE && in->lookups >= all_rows(in);
}

const struct kernel *auto_kernel(const struct embfuse_model *m, enum operation operation,
                                 const struct batch *in) {
    struct error ignored;
    const bool host = m->place == ON_HOST;
    const char *name = operation == OP_FORWARD       ? host ? "cpu_lookup_ahead" : "cuda_lookup"
                       : operation == OP_WEIGHT_GRAD ? host ? "cpu_dot" : "cuda_dot"
                       : !host                       ? "cuda_fused"
                       : dense_is_faster(m, in)      ? "cpu_dense"
                                                     : "cpu_fused";
    return registry_find(operation, name, &ignored);
}
