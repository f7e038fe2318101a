/* SPDX-License-Identifier: MIT
 *
 * The bench program on several ranks: mpirun -np 4 build/ranks/bench --sharding=row, and the options of
 * build/bench. Rank 0 measures as bench does, at a place of ranks; the others follow.
 */
#include <sched.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" {
#include "harness/record/bench.h"
#include "ranks/board.h"
#include "ranks/place_ranks.h"
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
    if (here > cores)
        add(ctx, "emb_oversubscribed",
            (std::to_string(here) + " ranks on " + std::to_string(cores) + " CPUs").c_str());
}

/* The orders of rank 0 mean the same to all ranks only if all run one program. Rank 0 says which one does not. */
int same_program(struct transport *t, struct error *err) {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const uint64_t own = XXH3_64bits(text.data(), text.size());
    std::vector<uint64_t> all((size_t)t->ranks);
    if (transport_all_gather(t, &own, sizeof own, all.data(), err)) return -1;
    for (int r = 0; r < t->ranks; r++)
        if (all[(size_t)r] != all[0])
            return fail(
                err, "rank %d runs another program than rank 0; start one build on all ranks", r);
    return 0;
}

/* Threads of a rank, unless they are given: the CPUs that it is bound to, or else its share of the node's. */
std::string own_threads() {
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    const int own = CPU_COUNT(&cpus), here = ranks.transport->ranks / ranks.transport->nodes;
    const bool bound = own < (int)sysconf(_SC_NPROCESSORS_ONLN);
    return "--threads=" + std::to_string(std::max(1, bound ? own : own / here));
}

/* Takes the options of ranks out of the command line. */
std::vector<char *> own_options(int argc, char **argv) {
    static std::string threads = own_threads(); /* the last of two counts */
    std::vector<char *> left = {argv[0], threads.data()};
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--sharding=", 11))
            ranks.options.sharding = argv[i] + 11;
        else if (!strcmp(argv[i], "--all-rows"))
            ranks.options.all_rows = true;
        else if (!strcmp(argv[i], "--overlap"))
            ranks.options.overlap = true;
        else
            left.push_back(argv[i]);
    }
    left.push_back(nullptr);
    return left;
}

} // namespace

int main(int argc, char **argv) {
    ranks.options.sharding = "table";
    struct error err = {};
    ranks.transport = transport_mpi_open(&argc, &argv, &err);
    if (!ranks.transport) {
        fprintf(stderr, "ranks: %s\n", err.text);
        return EXIT_USAGE;
    }
    std::vector<char *> left = own_options(argc, argv);
    ranks.options.why = stderr; /* of the planner */
    int status = EXIT_FINE;
    if (board_open(ranks.transport, &err) || same_program(ranks.transport, &err)) {
        if (ranks.transport->rank == 0) fprintf(stderr, "ranks: %s\n", err.text);
        ranks.transport->ops->close(ranks.transport);
        return EXIT_USAGE;
    }
    if (ranks.transport->rank == 0) {
        const struct bench_places places = {open, describe};
        status = bench_main((int)left.size() - 1, left.data(), &places);
        if (ranks_dismiss(ranks.transport, &err)) status = EXIT_USAGE;
    } else if (ranks_follow(ranks.transport, &err)) {
        fprintf(stderr, "ranks: rank %d, %s: %s\n", ranks.transport->rank, ranks.transport->phase,
                err.text);
        ranks.transport->ops->abort(ranks.transport, EXIT_USAGE);
    }
    board_close();
    ranks.transport->ops->close(ranks.transport);
    return status;
}
