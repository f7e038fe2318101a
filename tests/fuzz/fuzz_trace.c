/* SPDX-License-Identifier: MIT
 *
 * Any bytes as the text of a trace: the parser refuses them with a message or returns a valid CSR.
 */
#include <stdlib.h>

#include "harness/workload/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct trace t;
    struct error err = {""};
    if (trace_parse_text("fuzz", (const char *)bytes, size, &t, &err)) {
        if (!err.text[0] || t.offsets || t.ids) abort();
        return 0;
    }
    if (t.bags < 1 || t.lookups < 1 || t.offsets[0] != 0 || t.offsets[t.bags] != t.lookups) abort();
    for (int64_t b = 0; b < t.bags; b++)
        if (t.offsets[b + 1] < t.offsets[b]) abort();
    for (int64_t i = 0; i < t.lookups; i++)
        if (t.ids[i] < 0 || t.ids[i] >= t.rows) abort();
    trace_free(&t);
    return 0;
}
