/* SPDX-License-Identifier: MIT
 *
 * Folders of tests that are gone, so that a test makes its own.
 */
#pragma once

#include <ftw.h>

#include "tests/support/work_files.h"

static inline int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(path);
}

static inline struct work_path no_folder(const char *name) {
    const struct work_path path = work_path("tiers", name);
    nftw(path.text, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return path;
}
