/* SPDX-License-Identifier: MIT
 *
 * A program that uses the installed library. It compiles as C99, C11 and C++17. Row 1 of a table of ones loses
 * lr = 1/2 for each of its two lookups.
 */
#include <embfuse.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    float weight[3][2] = {{1, 1}, {1, 1}, {1, 1}}, output[2][2] = {{0, 0}, {0, 0}};
    const float grad[2][2] = {{1, 1}, {1, 1}};
    const int32_t ids[3] = {1, 1, 2};
    const int64_t offsets[3] = {0, 1, 3};
    struct embfuse_table table;
    struct embfuse_feature feature;
    struct embfuse_batch batch;
    struct embfuse_model *model = NULL;
    struct embfuse_error why;
    memset(&table, 0, sizeof table);
    memset(&feature, 0, sizeof feature);
    memset(&batch, 0, sizeof batch);
    table.rows = 3;
    table.dim = 2;
    table.rule = "sgd";
    batch.size = sizeof batch;
    batch.bags = 2;
    batch.lookups = 3;
    batch.ids = ids;
    batch.offsets = offsets;
    batch.id_type = EMBFUSE_INT32;
    if (embfuse_version() != EMBFUSE_VERSION) return 2;
    if (embfuse_model_create(&model, &table, 1, &feature, 1, NULL, &why) ||
        embfuse_bind(model, 0, 0, weight, 0, &why) || embfuse_set(model, 0, "lr", 0.5, &why) ||
        embfuse_forward(model, &batch, output, &why) || embfuse_step(model, &batch, grad, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    embfuse_model_free(model);
    return !(output[1][0] == 2 && weight[0][0] == 1 && weight[1][0] == 0 && weight[2][1] == 0.5f);
}
