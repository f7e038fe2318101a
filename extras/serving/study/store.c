/* SPDX-License-Identifier: MIT */
#include "extras/serving/study/store.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "extras/library/frozen/row.h"

enum {
    KEY_MOST = 24, /* a row's number in decimal */
    AT_ONCE = 512, /* rows of one command while the server is filled */
    TIMEOUT = 60,  /* seconds without an answer */
};

/* The name of the hash. */
static const char hash[] = "embedding";

/* The words of one command. */
struct command {
    const char **word;
    size_t *size;
    char (*key)[KEY_MOST];
    int64_t room, count;
};

struct store {
    redisContext *redis;
    struct command command;
};

static void begin(struct command *c, const char *name, enum store_layout layout) {
    c->count = 0;
    c->word[c->count] = name;
    c->size[c->count++] = strlen(name);
    if (layout == STORE_KEYS) return;
    c->word[c->count] = hash;
    c->size[c->count++] = strlen(hash);
}

static void add(struct command *c, const void *word, size_t size) {
    c->word[c->count] = word;
    c->size[c->count++] = size;
}

static void add_row_number(struct command *c, int64_t row) {
    char *key = c->key[c->count];
    add(c, key, (size_t)snprintf(key, KEY_MOST, "%lld", (long long)row));
}

/* Room for that many words. */
static int need(struct command *c, int64_t words, struct error *err) {
    if (words <= c->room) return 0;
    free(c->word), free(c->size), free(c->key);
    c->word = malloc((size_t)words * sizeof *c->word);
    c->size = malloc((size_t)words * sizeof *c->size);
    c->key = malloc((size_t)words * sizeof *c->key);
    c->room = c->word && c->size && c->key ? words : 0;
    return c->room ? 0 : fail(err, "out of memory");
}

/* The next answer, of that type; NULL: err. */
static redisReply *answer(struct store *s, int type, struct error *err) {
    redisReply *reply = NULL;
    if (redisGetReply(s->redis, (void **)&reply) != REDIS_OK)
        fail(err, "the Redis server does not answer: %.100s", s->redis->errstr);
    else if (reply->type == REDIS_REPLY_ERROR)
        fail(err, "the Redis server refuses: %.200s", reply->str);
    else if (reply->type != type)
        fail(err, "the Redis server gives an answer of type %d, not %d", reply->type, type);
    else
        return reply;
    if (reply) freeReplyObject(reply);
    return NULL;
}

static int append(struct store *s, const struct command *c, struct error *err) {
    if (redisAppendCommandArgv(s->redis, (int)c->count, c->word, c->size) == REDIS_OK) return 0;
    return fail(err, "Redis: %.100s", s->redis->errstr);
}

/* "used_memory:1234" of INFO memory. */
static int64_t used_memory(struct store *s, struct error *err) {
    static const char key[] = "\nused_memory:";
    redisAppendCommand(s->redis, "INFO memory");
    redisReply *info = answer(s, REDIS_REPLY_STRING, err);
    const char *at = info ? strstr(info->str, key) : NULL;
    const int64_t bytes = at ? strtoll(at + sizeof key - 1, NULL, 10) : -1;
    if (info && bytes < 0) fail(err, "the Redis server does not tell its memory");
    if (info) freeReplyObject(info);
    return bytes;
}

static int done(struct store *s, int type, struct error *err) {
    redisReply *reply = answer(s, type, err);
    if (!reply) return -1;
    freeReplyObject(reply);
    return 0;
}

struct store *store_open(const char *socket, struct error *err) {
    const struct timeval most = {.tv_sec = TIMEOUT};
    struct store *s = must_have(calloc(1, sizeof *s));
    s->redis = redisConnectUnix(socket);
    if (s->redis && !s->redis->err && redisSetTimeout(s->redis, most) == REDIS_OK) return s;
    fail(err, "%.200s: no Redis server: %.100s", socket,
         s->redis ? s->redis->errstr : "out of memory");
    store_close(s);
    return NULL;
}

void store_close(struct store *s) {
    if (!s) return;
    if (s->redis) redisFree(s->redis);
    free(s->command.word), free(s->command.size), free(s->command.key);
    free(s);
}

int store_fill(struct store *s, enum store_layout layout, const struct frozen *t, int64_t *bytes,
               struct error *err) {
    struct command *c = &s->command;
    redisAppendCommand(s->redis, "FLUSHALL SYNC");
    if (done(s, REDIS_REPLY_STATUS, err) || need(c, 2 * AT_ONCE + 2, err)) return -1;
    const int64_t before = used_memory(s, err);
    if (before < 0) return -1;
    for (int64_t row = 0; row < t->rows;) {
        begin(c, layout == STORE_KEYS ? "MSET" : "HSET", layout);
        for (int k = 0; k < AT_ONCE && row < t->rows; k++, row++) {
            add_row_number(c, row);
            add(c, frozen_row(t, row), (size_t)t->row_bytes);
        }
        if (append(s, c, err) ||
            done(s, layout == STORE_KEYS ? REDIS_REPLY_STATUS : REDIS_REPLY_INTEGER, err))
            return -1;
    }
    *bytes = used_memory(s, err) - before;
    return *bytes > 0 ? 0 : -1;
}

int store_ask(struct store *s, enum store_layout layout, const struct batch *in, int64_t first,
              int64_t last, struct error *err) {
    struct command *c = &s->command;
    if (need(c, last - first + 2, err)) return -1;
    begin(c, layout == STORE_KEYS ? "MGET" : "HMGET", layout);
    for (int64_t i = first; i < last; i++) add_row_number(c, batch_id(in, i));
    return append(s, c, err);
}

int store_receive(struct store *s, const struct frozen *t, int64_t lookups, float *to,
                  struct error *err) {
    redisReply *all = answer(s, REDIS_REPLY_ARRAY, err);
    if (!all) return -1;
    int status = (int64_t)all->elements == lookups
                     ? 0
                     : fail(err, "the Redis server gives %zu rows, not %lld", all->elements,
                            (long long)lookups);
    for (int64_t i = 0; i < lookups && status == 0; i++) {
        const redisReply *row = all->element[i];
        if (row->type != REDIS_REPLY_STRING || (int64_t)row->len != t->row_bytes)
            status = fail(err, "the Redis server gives no row, or one of another size");
        else
            frozen_row_get(t->type, row->str, t->dim, to + i * t->dim);
    }
    freeReplyObject(all);
    return status;
}
