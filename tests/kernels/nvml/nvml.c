/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's management library in tests/kernels/test_device_clocks.c, which sets the reported reasons. It
 * plays a machine with two devices. Only the second one has the PCI address that the emulated device reports.
 */
#include <string.h>

unsigned long long nvml_reasons;             /* of the second device */
static char first_device, second_device = 1; /* only their addresses matter */

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci_id, void **device);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits);

int nvmlInit_v2(void) {
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = index == 0 ? &first_device : &second_device;
    return index > 1;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci_id, void **device) {
    enum { NOT_FOUND = 6 };
    *device = &second_device;
    return strcmp(pci_id, "0000:00:00.0") == 0 ? 0 : NOT_FOUND;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
    *mhz = (type == 1 ? 1400u : 2600u) + (device == &second_device);
    return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits) {
    *bits = device == &second_device ? nvml_reasons : 0;
    return 0;
}
