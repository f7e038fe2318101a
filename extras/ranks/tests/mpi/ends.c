/* SPDX-License-Identifier: MIT
 *
 * Ranks whose run cannot end well: they wait for each other, or send more than is expected.
 * extras/ranks/tests/test_ranks_mpi.py starts them.
 */
#include <string.h>

#include "extras/ranks/program.h"

int main(int argc, char **argv) {
    struct transport *t = program_open(&argc, &argv);
    if (!t || argc != 2 || t->ranks != 2) return EXIT_USAGE;
    const bool truncates = strcmp(argv[1], "truncate") == 0;
    struct parts out = parts_make(2), in = parts_make(2);
    struct error err;
    char data[16] = {0};
    if (t->rank == 0 && truncates) out.bytes[1] = 16;
    if (t->rank == 1) in.bytes[0] = truncates ? 8 : 16; /* which rank 0 never sends */
    transport_phase(t, t->rank == 0 ? "sending" : "receiving");
    const int status =
        transport_exchange(t, data, &out, data, &in, &err) || transport_barrier(t, &err);
    parts_free(&out);
    parts_free(&in);
    program_close(t);
    return status ? EXIT_USAGE : 0;
}
