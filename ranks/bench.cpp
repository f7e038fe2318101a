/* SPDX-License-Identifier: MIT
 *
 * The bench program on several ranks: mpirun -np 4 build/ranks/bench --sharding=row, and the options of
 * build/bench. Rank 0 measures as bench does, at a place of ranks; the others follow.
 */
#include <sched.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
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
    cpu_set_t cpus;
    sched_getaffinity(0, sizeof cpus, &cpus);
    const int cores = CPU_COUNT(&cpus), here = t->ranks / t->nodes;
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

/* Rank 0's orders mean the same to all ranks only if all run one program. */
int same_program(struct transport *t, struct error *err) {
    size_t size = 0;
    uint64_t hash = 0;
    FILE *file = fopen("/proc/self/exe", "rb");
    std::string text;
    char piece[1 << 16];
    while (file && (size = fread(piece, 1, sizeof piece, file)) > 0) text.append(piece, size);
    if (file) fclose(file);
    const uint64_t own = XXH3_64bits(text.data(), text.size());
    hash = own;
    if (transport_broadcast(t, 0, &hash, sizeof hash, err)) return -1;
    return hash == own
               ? 0
               : fail(err,
                      "this is another program than rank 0 runs; start one build on all ranks");
}

/* Takes the options of ranks out of the command line. */
std::vector<char *> own_options(int argc, char **argv) {
    std::vector<char *> left;
    for (int i = 0; i < argc; i++) {
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
        fprintf(stderr, "ranks: rank %d: %s\n", ranks.transport->rank, err.text);
        ranks.transport->ops->abort(ranks.transport, EXIT_USAGE);
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
