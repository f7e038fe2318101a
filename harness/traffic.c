/* SPDX-License-Identifier: MIT */
#include "harness/traffic.h"

int64_t compulsory_bytes(const struct batch *in, const struct row_index *index) {
    const int64_t element = sizeof(float);
    int64_t flat_bags = in->num_features * in->bags;
    int64_t bytes = in->lookups * (in->id_type == ID_INT32 ? 4 : 8) + (flat_bags + 1) * 8;
    if (in->lookup_weights) bytes += in->lookups * element;
    for (int64_t q = 0; q < flat_bags; q++) {
        const struct feature *f = &in->features[q / in->bags];
        int64_t length = in->offsets[q + 1] - in->offsets[q];
        int64_t rows = f->pooling == POOL_NONE ? length : length > 0;
        bytes += rows * in->tables[f->table].dim * element;
    }
    for (int64_t u = 0; u < index->rows; u++) {
        const struct table_shape *t = &in->tables[index->run[u].table];
        bytes += 2 * (t->dim + rule_state_floats(t->rule, t->dim)) * element;
    }
    return bytes;
}
