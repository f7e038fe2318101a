/* SPDX-License-Identifier: MIT */
#include "cli/source.h"

#include <string.h>

const struct spec *spec_pick(const struct spec_list *list, const char *path, const char *name,
                             struct error *err) {
    char names[360] = "";
    if (!name && list->count == 1) return list->specs;
    for (int i = 0; i < list->count; i++) {
        const char *known = list->specs[i].name;
        if (name && strcmp(known, name) == 0) return &list->specs[i];
        text_add(names, sizeof names, " %s", known);
    }
    if (name)
        fail(err, "%.60s: no workload '%.60s'; it has%s", path, name, names);
    else
        fail(err, "%.60s: several workloads, choose one with --workload:%s", path, names);
    return NULL;
}
