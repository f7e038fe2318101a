/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a workload spec: the parser refuses them with a message or returns points whose
 * values a generator can use. Bytes before the first NUL, if there is one, are the overrides.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/workload/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_point(const struct spec *s) {
    if (!s->name[0] || memchr(s->name, '\0', sizeof s->name) == NULL) abort();
    if (s->num_batches < 1 || s->batches[0] < 1 || s->num_tables < 1 || s->features_per_table < 1)
        abort();
    if (!(s->alpha >= 0) || !(s->shift >= 0) || !(s->reuse >= 0 && s->reuse <= 1)) abort();
    if ((unsigned)s->rule >= RULE_COUNT || (unsigned)s->pooling > POOL_MAX) abort();
    for (int t = 0; t < s->num_tables; t++) {
        const struct table_spec *table = &s->tables[t];
        if (table->rows < 1 || table->dim < 1 || s->padding_id >= table->rows) abort();
        if (!(table->length.a >= 0) || !(table->length.b >= 0)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const char *text = (const char *)bytes;
    const char *nul = size ? memchr(text, '\0', size) : NULL;
    size_t skip = nul ? (size_t)(nul - text) + 1 : 0;
    struct spec_overrides over = {0};
    if (nul) over.alpha = over.pooling = over.rows = text;
    struct spec_list list;
    struct error err = {""};
    if (spec_parse("fuzz", text + skip, size - skip, &over, &list, &err)) {
        if (!err.text[0] || list.count || list.specs) abort();
        return 0;
    }
    if (list.count < 1) abort();
    for (int i = 0; i < list.count; i++) check_point(&list.specs[i]);
    spec_list_free(&list);
    return 0;
}
