/* SPDX-License-Identifier: MIT */
#include "harness/registry.h"

#include <stdlib.h>
#include <string.h>

#include "harness/prefetch_choice.h"
#include "kernels/shape.h"

#define KERNEL(family, symbol, isa) extern const struct kernel kernel_##symbol;
#include "kernel_list.inc"
#undef KERNEL

/* All kernels of the build, for every level; isa is "" for a kernel without levels. */
static const struct {
    const char *isa;
    struct registered entry;
} built[] = {
#define KERNEL(family, symbol, isa) {#isa, {#family, &kernel_##symbol}},
#include "kernel_list.inc"
#undef KERNEL
};
enum { BUILT = sizeof built / sizeof *built };

static struct registered table[BUILT + 1];
static const char *chosen;   /* NULL: see refused */
static struct error refused; /* what is wrong with EMBFUSE_ISA or EMBFUSE_PREFETCH */

/* Runs before main, so that threads only read the table. */
__attribute__((constructor)) static void choose(void) {
    const struct {
        const char *isa;
        bool here;
    } levels[] = {
/* From the Makefile: ISA(level, HAS(feature) HAS(feature) ...), the best level first. */
#define HAS(feature)         &&__builtin_cpu_supports(#feature)
#define ISA(level, features) {#level, true features},
        ISAS
#undef ISA
#undef HAS
    };
    const char *wanted = getenv("EMBFUSE_ISA");
    char here[100] = "";
    if (chosen || refused.text[0]) return;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!levels[i].here) continue;
        strcat(strcat(here, " "), levels[i].isa);
        if (!chosen && (!wanted || !*wanted || strcmp(wanted, levels[i].isa) == 0))
            chosen = levels[i].isa;
    }
    if (!chosen)
        fail(&refused, "EMBFUSE_ISA: cannot run '%.40s'; this build and CPU can:%s", wanted, here);
    if (chosen && prefetch_choose(&refused)) chosen = NULL;
    for (int i = 0, kernels = 0; chosen && i < BUILT; i++)
        if (!*built[i].isa || strcmp(built[i].isa, chosen) == 0) table[kernels++] = built[i].entry;
}

int registry_ready(struct error *err) {
    choose();
    return chosen ? 0 : fail(err, "%s", refused.text);
}

const char *registry_isa(void) {
    return chosen;
}

const struct registered *registry(void) {
    return table;
}

const struct kernel *registry_find(enum operation operation, const char *name, struct error *err) {
    char known[sizeof err->text] = "";
    for (const struct registered *r = registry(); r->kernel; r++) {
        if (r->kernel->operation != operation) continue;
        if (strcmp(r->kernel->name, name) == 0) return r->kernel;
        text_add(known, sizeof known, " %s", r->kernel->name);
    }
    fail(err, "unknown kernel '%.60s'; known:%s", name, known);
    return NULL;
}

const char *traits_text(unsigned traits, const char *between, char text[TRAITS_MAX]) {
    static const char *const names[] = {"deterministic",   "dense_gradient", "dense_step",
                                        "step_per_lookup", "own_lookups",    "merged"};
    text[0] = '\0';
    for (size_t bit = 0; bit < sizeof names / sizeof *names; bit++)
        if (traits >> bit & 1)
            text_add(text, TRAITS_MAX, "%s%s", text[0] ? between : "", names[bit]);
    return text;
}

const char *operation_name(enum operation operation) {
    static const char *const names[] = {[OP_STEP] = "step",
                                        [OP_FORWARD] = "forward",
                                        [OP_GRADIENT] = "gradient",
                                        [OP_WEIGHT_GRAD] = "weight_grad"};
    _Static_assert(sizeof names / sizeof *names == OPERATIONS, "an operation has no name");
    return names[operation];
}

const char *kernel_refuses(const struct kernel *k, const struct batch *shape) {
    for (int t = 0; t < shape->num_tables; t++)
        if (!kernel_applies(k, shape->tables[t].rule)) return "does not apply a table's rule";
    for (int t = 0; t < shape->num_tables; t++)
        if (k->traits & STEP_PER_LOOKUP && shape->tables[t].adjusts)
            return "takes a step per lookup, and cannot adjust a table's summed gradients";
    for (int t = 0; t < shape->num_tables; t++)
        if (k->place == ON_HOST && table_is_narrow(&shape->tables[t]) &&
            shape->tables[t].dim > NARROW_DIM_MOST)
            return "wider rows than 65536 elements of a type narrower than fp32";
    if (k->operation == OP_WEIGHT_GRAD && !shape->lookup_weights)
        return "it has no per-sample weights";
    if (has_pooling(shape, POOL_MAX)) {
        if (shape->lookups > INT32_MAX) return "max pooling of 2^31 lookups or more";
        if (shape->lookup_weights) return "max pooling takes no per-sample weights";
        if (k->operation != OP_FORWARD && !shape->winners)
            return "max pooling needs the winners that its forward saved";
    }
    return k->accepts ? k->accepts(shape) : NULL;
}
