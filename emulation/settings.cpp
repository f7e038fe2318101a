/* SPDX-License-Identifier: MIT */
#include "emulation/emulation.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulation/runtime.h"

namespace emulation {

static uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

static void set_failing(Settings &s, const char *part) {
    snprintf(s.failing, sizeof s.failing, "%s", part ? part : "");
}

Settings &settings() {
    static Settings now = [] {
        Settings s = {};
        s.order = int(from_environment("EMULATION_ORDER", EMULATION_RANDOM));
        s.seed = from_environment("EMULATION_SEED", 1);
        s.resident = int(from_environment("EMULATION_RESIDENT", 0));
        s.renew = from_environment("EMULATION_RENEW", 1) != 0;
        s.capacity = size_t(from_environment("EMULATION_CAPACITY", uint64_t(8) << 30));
        set_failing(s, getenv("EMULATION_FAIL_LAUNCH"));
        return s;
    }();
    return now;
}

bool launch_fails(const char *kernel) {
    Settings &s = settings();
    if (s.failing[0] && strstr(kernel, s.failing)) {
        s.failing[0] = '\0';
        return true;
    }
    s.scheduled++;
    s.launches++;
    return false;
}

} // namespace emulation

void emulation_schedule(int order, uint64_t seed) {
    emulation::Settings &s = emulation::settings();
    s.order = order;
    s.seed = seed;
    s.scheduled = 0;
}

void emulation_resident(int blocks) {
    emulation::settings().resident = blocks;
}

uint64_t emulation_launches(void) {
    return emulation::settings().launches;
}

void emulation_capacity(size_t bytes) {
    emulation::settings().capacity = bytes;
}

void emulation_fail_launch(const char *kernel_substring) {
    emulation::set_failing(emulation::settings(), kernel_substring);
}
