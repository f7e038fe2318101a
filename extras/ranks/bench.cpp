/* SPDX-License-Identifier: MIT
 *
 * The bench program on several ranks: mpirun -np 4 build/extras/ranks/bench --sharding=row, and the options of
 * build/bench. Rank 0 measures as bench does, at a place of ranks; the others follow.
 */
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "harness/record/bench.h"
#include "extras/ranks/place_ranks.h"
#include "extras/ranks/program.h"
}

namespace {

struct {
    struct transport *transport;
    struct ranks_options options = {};
} ranks;

struct place *open(enum backend backend, const struct place_setup *setup, struct error *err) {
    return place_ranks_open(ranks.transport, &ranks.options, backend, setup, err);
}

void describe(void (*add)(void *ctx, const char *key, const char *value), void *ctx) {
    const struct transport *t = ranks.transport;
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), here = t->ranks / t->nodes;
    add(ctx, "emb_ranks", std::to_string(t->ranks).c_str());
    add(ctx, "emb_nodes", std::to_string(t->nodes).c_str());
    add(ctx, "emb_transport", t->name);
    add(ctx, "emb_sharding", ranks.options.sharding);
    add(ctx, "emb_all_rows", ranks.options.all_rows ? "1" : "0");
    add(ctx, "emb_overlap", ranks.options.overlap ? "1" : "0");
    add(ctx, "emb_device_rows",
        t->open_device && !ranks.options.staged ? "NCCL" : "through host memory");
    if (here > cores)
        add(ctx, "emb_oversubscribed",
            (std::to_string(here) + " ranks on " + std::to_string(cores) + " CPUs").c_str());
}

/* Takes the options of ranks out of the command line. */
std::vector<char *> own_options(int argc, char **argv) {
    /* The last of two counts. */
    static std::string threads = "--threads=" + std::to_string(program_threads(ranks.transport));
    std::vector<char *> left = {argv[0], threads.data()};
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--sharding=", 11))
            ranks.options.sharding = argv[i] + 11;
        else if (!strcmp(argv[i], "--all-rows"))
            ranks.options.all_rows = true;
        else if (!strcmp(argv[i], "--overlap"))
            ranks.options.overlap = true;
        else if (!strcmp(argv[i], "--staged"))
            ranks.options.staged = true;
        else
            left.push_back(argv[i]);
    }
    left.push_back(nullptr);
    return left;
}

void help() {
    printf(
        "of ranks, beside the options of bench:\n"
        "  --sharding  how tables are cut: one word of extras/ranks/README.md for all, or one for "
        "each: list;\n"
        "              extras/ranks/plan.py chooses them; table\n"
        "  --all-rows  a bag's gradient goes to all ranks with rows of its table\n"
        "  --overlap   a half of the tables is updated while gradients of the other travel\n"
        "  --staged    rows of devices travel through host memory, without NCCL\n");
}

int lead(void *ctx) {
    const struct bench_places places = {open, describe};
    std::vector<char *> &words = *(std::vector<char *> *)ctx;
    for (const char *word : words)
        if (word && (!strcmp(word, "--help") || !strcmp(word, "-h"))) help();
    return bench_main((int)words.size() - 1, words.data(), &places);
}

} // namespace

int main(int argc, char **argv) {
    ranks.options.sharding = "table";
    ranks.transport = program_open(&argc, &argv);
    if (!ranks.transport) return EXIT_USAGE;
    std::vector<char *> left = own_options(argc, argv);
    return program_run(ranks.transport, lead, &left);
}
