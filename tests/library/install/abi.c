/* SPDX-License-Identifier: MIT
 *
 * Prints what a program that was compiled with include/embfuse.h has built in: sizes, offsets, numbers.
 */
#include <embfuse.h>
#include <stdio.h>

#define SIZE(type)         printf("struct %s %zu\n", #type, sizeof(struct type))
#define FIELD(type, field) printf("  %s %zu\n", #field, offsetof(struct type, field))
#define NUMBER(name)       printf("%s %d\n", #name, name)

int main(void) {
    SIZE(embfuse_error);
    SIZE(embfuse_table);
    FIELD(embfuse_table, rows);
    FIELD(embfuse_table, dim);
    FIELD(embfuse_table, weight_type);
    FIELD(embfuse_table, momentum_type);
    FIELD(embfuse_table, rounding);
    FIELD(embfuse_table, rule);
    SIZE(embfuse_feature);
    FIELD(embfuse_feature, table);
    FIELD(embfuse_feature, pooling);
    FIELD(embfuse_feature, padding_id);
    FIELD(embfuse_feature, grad_offset);
    FIELD(embfuse_feature, grad_stride);
    SIZE(embfuse_options);
    FIELD(embfuse_options, kernel);
    FIELD(embfuse_options, forward);
    FIELD(embfuse_options, place);
    FIELD(embfuse_options, threads);
    FIELD(embfuse_options, grad_type);
    FIELD(embfuse_options, rounding_seed);
    SIZE(embfuse_array);
    FIELD(embfuse_array, states);
    FIELD(embfuse_array, type);
    FIELD(embfuse_array, width);
    FIELD(embfuse_array, row_bytes);
    SIZE(embfuse_batch);
    FIELD(embfuse_batch, bags);
    FIELD(embfuse_batch, lookups);
    FIELD(embfuse_batch, ids);
    FIELD(embfuse_batch, offsets);
    FIELD(embfuse_batch, lookup_weights);
    FIELD(embfuse_batch, id_type);
    FIELD(embfuse_batch, trusted);
    FIELD(embfuse_batch, stream);
    FIELD(embfuse_batch, feature_lookups);
    FIELD(embfuse_batch, winners);
    FIELD(embfuse_batch, weight_grad);
    SIZE(embfuse_loaded);
    FIELD(embfuse_loaded, number);
    FIELD(embfuse_loaded, passed_over);
    FIELD(embfuse_loaded, damage);
    NUMBER(EMBFUSE_OK);
    NUMBER(EMBFUSE_INVALID);
    NUMBER(EMBFUSE_BAD_BATCH);
    NUMBER(EMBFUSE_UNKNOWN);
    NUMBER(EMBFUSE_REFUSED);
    NUMBER(EMBFUSE_NO_MEMORY);
    NUMBER(EMBFUSE_DEVICE_ERROR);
    NUMBER(EMBFUSE_FILE_ERROR);
    NUMBER(EMBFUSE_FP32);
    NUMBER(EMBFUSE_BF16);
    NUMBER(EMBFUSE_FP16);
    NUMBER(EMBFUSE_FP8);
    NUMBER(EMBFUSE_INT32);
    NUMBER(EMBFUSE_INT64);
    NUMBER(EMBFUSE_NEAREST);
    NUMBER(EMBFUSE_STOCHASTIC);
    NUMBER(EMBFUSE_SUM);
    NUMBER(EMBFUSE_MEAN);
    NUMBER(EMBFUSE_NONE);
    NUMBER(EMBFUSE_MAX);
    NUMBER(EMBFUSE_HOST);
    NUMBER(EMBFUSE_DEVICE);
    return 0;
}
