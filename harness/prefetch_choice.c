/* SPDX-License-Identifier: MIT */
#include "harness/prefetch_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES_LEAST = 64, BYTES_MOST = 1 << 20 };

enum { L1_USUAL = 32 << 10, L2_USUAL = 1 << 20 }; /* where the system does not tell */

struct prefetch_choice prefetch_choice = PREFETCH_FOR(L1_USUAL, L2_USUAL);

static int32_t cache_bytes(int name, int32_t usual, int32_t most) {
    const long bytes = sysconf(name);
    return bytes <= 0 ? usual : bytes < most ? (int32_t)bytes : most;
}

struct prefetch_choice prefetch_default(void) {
    const int32_t l1 = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, L1_USUAL, 16 * BYTES_MOST);
    const int32_t l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, L2_USUAL, 2 * BYTES_MOST);
    return (struct prefetch_choice)PREFETCH_FOR(l1, l2);
}

const char *prefetch_text(const struct prefetch_choice *choice, char text[PREFETCH_TEXT]) {
    snprintf(text, PREFETCH_TEXT, "rows:L%d:%d,grads:L%d:%d,sort:%d",
             choice->rows.into == INTO_L1 ? 1 : 2, choice->rows.bytes,
             choice->grads.into == INTO_L1 ? 1 : 2, choice->grads.bytes, choice->sort_bytes);
    return text;
}

/* Reads one part; *length: of its text. */
static bool parse_part(const char *text, struct prefetch_choice *choice, int *length) {
    char name[6], end;
    int cache, bytes;
    if (sscanf(text, "%5[a-z]:L%1d:%7d%n%c", name, &cache, &bytes, length, &end) >= 3) {
        const struct prefetch_ahead ahead = {cache == 1 ? INTO_L1 : INTO_L2, bytes};
        if (cache < 1 || cache > 2 || bytes < BYTES_LEAST || bytes > BYTES_MOST) return false;
        if (strcmp(name, "rows") == 0) return choice->rows = ahead, true;
        return strcmp(name, "grads") == 0 && (choice->grads = ahead, true);
    }
    if (sscanf(text, "sort:%7d%n", &bytes, length) < 1 || bytes < 0 || bytes > BYTES_MOST)
        return false;
    return choice->sort_bytes = bytes, true;
}

int prefetch_choose(struct error *err) {
    const char *wanted = getenv("EMBFUSE_PREFETCH"), *text = wanted ? wanted : "";
    const struct prefetch_choice usual = prefetch_default();
    struct prefetch_choice read = usual;
    char example[PREFETCH_TEXT];
    for (const char *at = text; *at;) {
        int length = 0;
        bool right = parse_part(at, &read, &length);
        right = right && (at[length] == '\0' || (at[length] == ',' && at[length + 1]));
        if (!right)
            return fail(err,
                        "EMBFUSE_PREFETCH: '%.60s' is not like %s with L1 or L2 and %d to %d "
                        "bytes; sort may have 0",
                        text, prefetch_text(&usual, example), BYTES_LEAST, BYTES_MOST);
        at += length + (at[length] == ',');
    }
    prefetch_choice = read;
    return 0;
}
