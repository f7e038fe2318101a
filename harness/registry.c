/* SPDX-License-Identifier: MIT */
#include "harness/registry.h"

#include <string.h>

#define KERNEL(family, name) extern const struct kernel kernel_##name;
#include "kernel_list.inc"
#undef KERNEL

static const struct registered table[] = {
#define KERNEL(family, name) {#family, &kernel_##name},
#include "kernel_list.inc"
#undef KERNEL
};

const struct registered *registry(int *count) {
    *count = (int)(sizeof table / sizeof *table);
    return table;
}

const struct kernel *registry_find(const char *name, struct error *err) {
    int count;
    const struct registered *r = registry(&count);
    size_t used = 0;
    char known[400] = "";
    for (int i = 0; i < count; i++) {
        const char *n = r[i].kernel->name;
        if (strcmp(n, name) == 0) return r[i].kernel;
        if (used + strlen(n) + 2 < sizeof known) {
            strcpy(known + used, " ");
            strcpy(known + used + 1, n);
            used += strlen(n) + 1;
        }
    }
    fail(err, "unknown kernel '%.60s'; known:%s", name, known);
    return NULL;
}

const char *kernel_refuses(const struct kernel *k, const struct batch *shape) {
    for (int t = 0; t < shape->num_tables; t++)
        if (!(k->rules & (1u << shape->tables[t].rule))) return "does not apply a table's rule";
    return k->accepts ? k->accepts(shape) : NULL;
}
