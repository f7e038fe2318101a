/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a .npy file: the parser refuses them with a message or returns a consistent array.
 */
#include <stdlib.h>

#include "harness/workload/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct npy a;
    struct error err = {""};
    if (npy_parse("fuzz", bytes, size, &a, &err)) {
        if (!err.text[0] || a.data || a.count) abort();
        return 0;
    }
    int64_t count = 1;
    for (int d = 0; d < a.num_dims; d++) count *= a.shape[d];
    if (a.num_dims > NPY_MAX_DIMS || count != a.count || (uint64_t)count > size) abort();
    /* Touch the last element, so that AddressSanitizer checks it. */
    size_t element = npy_element_bytes(a.type);
    volatile char last = 0;
    if (count) last = ((const char *)a.data)[(size_t)count * element - 1];
    (void)last;
    npy_free(&a);
    return 0;
}
