/* SPDX-License-Identifier: MIT */
extern "C" {
#include "harness/record/bench.h"
}

int main(int argc, char **argv) {
    return bench_main(argc, argv, nullptr);
}
