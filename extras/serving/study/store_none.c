/* SPDX-License-Identifier: MIT
 *
 * Replaces store.c where hiredis is not installed.
 */
#include "extras/serving/study/store.h"

struct store *store_open(const char *socket, struct error *err) {
    fail(err, "%s: built without hiredis (Debian: libhiredis-dev)", socket);
    return NULL;
}

void store_close(struct store *s) {
    (void)s;
}

int store_fill(struct store *s, enum store_layout layout, const struct frozen *t, int64_t *bytes,
               struct error *err) {
    (void)s, (void)layout, (void)t, (void)bytes;
    return fail(err, "built without hiredis");
}

int store_ask(struct store *s, enum store_layout layout, const struct batch *in, int64_t first,
              int64_t last, struct error *err) {
    (void)s, (void)layout, (void)in, (void)first, (void)last;
    return fail(err, "built without hiredis");
}

int store_receive(struct store *s, const struct frozen *t, int64_t lookups, float *to,
                  struct error *err) {
    (void)s, (void)t, (void)lookups, (void)to;
    return fail(err, "built without hiredis");
}
