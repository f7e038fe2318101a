/* SPDX-License-Identifier: MIT
 *
 * The kernel that `make sass-counts` counts, and all that is known of it: its object, its name and its arguments. The
 * rest of this folder knows sorted entries and rows only. To count another kernel, change this file.
 *
 *     target LOOKUPS DIM ROWS RULE BAGS
 *
 * One table, one feature, fp32. Prints a line for each fact:
 *     kernel NAME                      without its parameters
 *     threads N                        of a block
 *     chunk N                          entries that a group takes; borders of chunks cut runs
 *     reach N                          a run that ends at most so many entries behind its chunk is finished there
 *     entries N                        of a block
 *     dynamic N                        bytes of shared memory that the launch adds
 *     memory NAME ADDRESS BYTES [HEX]  key, value, grad, weight, row, elem0, elem1 are filled and checked by batch.py;
 *                                      others hold the bytes that are given, and then zeros
 *     arguments HEX
 *     hyper NAME VALUE                 of the rule; bias0 and bias1: rule_step.derived
 */
#include "kernels/device/lean.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define OBJECT "kernels/device/lean_%" /* % is the rule; Makefiles read this line */

enum : uint64_t {
    KEY = 0x100000000,
    VALUE = 0x140000000,
    GRAD = 0x200000000,
    PARTIAL = 0x300000000,
    ARRIVED = 0x340000000,
    LIST = 0x348000000,
    TABLES = 0x350000000,
    STEPS = 0x351000000,
    IO = 0x352000000,
    WEIGHT = 0x1000000000,
    ROW = 0x3000000000,
    ELEM = 0x4000000000,
    BETWEEN_ELEMS = 0x1000000000,
};

static void print_bytes(const void *from, size_t bytes) {
    for (size_t k = 0; k < bytes; k++) printf("%02x", ((const unsigned char *)from)[k]);
    printf("\n");
}

static void print_memory(const char *name, uint64_t at, int64_t bytes) {
    printf("memory %s %#llx %lld\n", name, (unsigned long long)at, (long long)bytes);
}

template <class T> static void print_struct(const char *name, uint64_t at, const T &from) {
    printf("memory %s %#llx %zu ", name, (unsigned long long)at, sizeof from);
    print_bytes(&from, sizeof from);
}

static enum rule_kind rule_called(const char *name) {
    for (int k = 0; k < RULE_COUNT; k++)
        if (!strcmp(rule_info((enum rule_kind)k).name, name)) return (enum rule_kind)k;
    fprintf(stderr, "target: no rule is called %s\n", name);
    exit(1);
}

static void print_rows(enum rule_kind kind, int64_t rows, int32_t dim, struct table *io) {
    const struct rule_info info = rule_info(kind);
    io->weight = {(void *)WEIGHT, dim * 4};
    print_memory("weight", WEIGHT, rows * dim * 4);
    if (info.row_states) {
        io->row = {(void *)ROW, info.row_states * 4};
        print_memory("row", ROW, rows * info.row_states * 4);
    }
    for (int k = 0; k < info.elem_states; k++) {
        const uint64_t at = ELEM + (uint64_t)k * BETWEEN_ELEMS;
        const char name[] = {'e', 'l', 'e', 'm', (char)('0' + k), 0};
        io->elem[k] = {(void *)at, dim * 4};
        print_memory(name, at, rows * dim * 4);
    }
}

static void print_rule(const struct rule_step &step) {
    const struct rule_info info = rule_info(step.rule.kind);
    for (int k = 0; k < info.num_params; k++)
        printf("hyper %s %.9g\n", info.params[k].name, (double)step.rule.param[k]);
    printf("hyper bias0 %.9g\nhyper bias1 %.9g\n", (double)step.derived[0],
           (double)step.derived[1]);
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "usage: target LOOKUPS DIM ROWS RULE BAGS\n"), 1;
    const int64_t lookups = atoll(argv[1]), rows = atoll(argv[3]), bags = atoll(argv[5]);
    const int32_t dim = atoi(argv[2]);
    const enum rule_kind kind = rule_called(argv[4]);
    struct table_shape shape = {};
    shape.rows = rows, shape.dim = dim, shape.rule = kind, shape.features = 1;
    shape.lookups = lookups;
    struct feature feature = {};
    feature.padding_id = -1, feature.grad_stride = dim, feature.bags = bags,
    feature.lookups = lookups;
    struct batch in = {};
    in.num_tables = in.num_features = 1, in.flat_bags = bags, in.lookups = lookups;
    in.tables = &shape, in.features = &feature, in.device_tables = (struct table_shape *)TABLES;
    in.grad = (void *)GRAD, in.grad_elements = bags * dim;
    struct table io = {};
    struct runs r;
    struct scratch none = {NULL, 0};
    runs_lay_out(&r, &none, &in, lookups, dim);
    r.kind = kind_of(&shape, false);
    r.entries = entries_of(&in), r.entries.key = (uint32_t *)KEY, r.entries.value = (void *)VALUE;
    r.partial = (float *)PARTIAL, r.arrived = (uint32_t *)ARRIVED;
    r.listed = r.list_key = r.list_place = (uint32_t *)LIST;
    r.target = {in.device_tables, 1, (struct rule_step *)STEPS, (struct table *)IO, NULL};
    const int lanes = lanes_of_cover(cover_of(dim)), quads = dim > WIDEST_COVER / 2 ? 2 : 1,
              groups = LEAN_BLOCK / lanes;
    const struct rule_step step = rule_step(rule_default(kind), 3);

    printf("kernel sum_rows<%d, %d, true>\nthreads %d\n", lanes, quads, LEAN_BLOCK);
    printf("chunk %d\nreach %d\nentries %d\ndynamic 0\n", r.tree.chunk, REACH,
           r.tree.chunk * groups);
    print_memory("key", KEY, (lookups + 1) * (int64_t)sizeof *r.entries.key);
    print_memory("value", VALUE, lookups * (int64_t)value_bytes(&r.entries));
    print_memory("grad", GRAD, bags * dim * 4);
    print_memory("partial", PARTIAL, 2 * tree_nodes(&r.tree) * r.stride * 4);
    print_memory("arrived", ARRIVED, (inner_nodes(&r.tree) + 1) * 4);
    print_rows(kind, rows, dim, &io);
    print_struct("tables", TABLES, shape), print_struct("steps", STEPS, step);
    print_struct("io", IO, io);
    print_rule(step);
    printf("arguments ");
    print_bytes(&r, sizeof r);
}
