/* SPDX-License-Identifier: MIT
 *
 * Prints the device that the kernels run on, for the record of a test run. Without a device it
 * prints the reason and exits with status 1.
 */
#include <stdio.h>

#include "harness/device/device.h"
#include "harness/registry.h"

int main(void) {
    struct error err;
    if (device_open(&err)) {
        fprintf(stderr, "gpu-verify: %s\n", err.text);
        return 1;
    }
    struct device_facts f = device_facts();
    printf("device: %s\n", f.name);
    printf("compute capability: %d.%d\n", f.capability / 10, f.capability % 10);
    printf("multiprocessors: %d\n", f.multiprocessors);
    printf("memory: %.1f GiB\n", (double)f.memory / (1 << 30));
    printf("CUDA of the driver: %d.%d\n", f.driver / 1000, f.driver % 1000 / 10);
    printf("CUDA runtime: %d.%d\n", f.runtime / 1000, f.runtime % 1000 / 10);
    printf("kernels:");
    for (const struct registered *r = registry(); r->kernel; r++)
        if (r->kernel->place == ON_DEVICE) printf(" %s", r->kernel->name);
    printf("\n");
    return 0;
}
