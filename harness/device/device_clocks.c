/* SPDX-License-Identifier: MIT
 *
 * Loads the library by name, so that neither the build nor a run needs it. Types and numbers come
 * from nvml.h. NVML numbers all devices of the machine, CUDA those of CUDA_VISIBLE_DEVICES: only the
 * place on the PCI bus means the same device to both.
 */
#include "harness/device/device_clocks.h"

#include <dlfcn.h>

#include "harness/device/device.h"

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, FINE = 0 };
/* Hardware slowdown, software and hardware thermal slowdown, hardware power brake. */
enum { SLOWDOWNS = 0x08 | 0x20 | 0x40 | 0x80 };

struct nvml {
    void *library, *device;
    int (*clock)(void *device, int type, unsigned *mhz);
    int (*reasons)(void *device, unsigned long long *bits);
};

static struct nvml load(const char *pci_id) {
    struct nvml n = {0};
    int (*init)(void), (*handle)(const char *pci_id, void **device);
    n.library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!n.library) return n;
    *(void **)&init = dlsym(n.library, "nvmlInit_v2");
    *(void **)&handle = dlsym(n.library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&n.clock = dlsym(n.library, "nvmlDeviceGetClockInfo");
    *(void **)&n.reasons = dlsym(n.library, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!init || !handle || init() != FINE || handle(pci_id, &n.device) != FINE) n.device = NULL;
    return n;
}

static int clock_of(const struct nvml *n, int type) {
    unsigned mhz;
    return n->clock && n->clock(n->device, type, &mhz) == FINE ? (int)mhz : -1;
}

struct device_clocks device_clocks(void) {
    static struct nvml n;
    static bool loaded;
    struct device_clocks c = {-1, -1, -1, false};
    unsigned long long bits;
    if (!loaded) n = load(device_facts().pci_id);
    loaded = true;
    if (!n.device) return c;
    c.sm_mhz = clock_of(&n, CLOCK_SM);
    c.memory_mhz = clock_of(&n, CLOCK_MEMORY);
    if (n.reasons && n.reasons(n.device, &bits) == FINE) {
        c.limits = (int)bits;
        c.throttled = bits & SLOWDOWNS;
    }
    return c;
}
