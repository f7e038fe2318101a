/* SPDX-License-Identifier: MIT
 *
 * Any bytes as the text of a trace: the parser refuses them with a message or returns a valid CSR.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/workload/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct trace t = {0};
    struct error err = {""};
    char path[40];
    int file = memfd_create("fuzz", 0);
    if (file < 0 || write(file, bytes, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int failed = trace_read_text(path, &t, &err);
    close(file);
    if (failed) {
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
