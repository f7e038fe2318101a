/* SPDX-License-Identifier: MIT
 *
 * Where a result comes from: source, compiler, machine and its state. Nothing is left out: what the
 * system does not tell is "unavailable".
 */
#ifndef EMBFUSE_ENVIRONMENT_H
#define EMBFUSE_ENVIRONMENT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Calls add(ctx, key, value) for every fact; keys begin with "emb_". */
void environment_describe(int threads, void (*add)(void *ctx, const char *key, const char *value),
                          void *ctx);

#ifdef __cplusplus
}
#endif

#endif
