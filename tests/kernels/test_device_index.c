/* SPDX-License-Identifier: MIT
 *
 * The index of rows in device memory against a plain array: the slot of each lookup, each distinct
 * row once, and lookups of missing rows, for both types of ids, with padding, over several features
 * and batches, in every order of threads.
 */
#include <stdlib.h>
#include <string.h>

#include "emulation/emulation.h"
#include "harness/device/device_index.h"
#include "harness/memory.h"
#include "kernels/rng.h"
#include "tests/support/kernel_tests.h"

enum { ROWS = 1000, LOOKUPS = 3000, SPLIT = 1001, BATCHES = 6, PADDING = 17, PADDING_SLOT = 900 };

struct test {
    struct device_index index;
    void *stream;
    struct device_buffer ids, slot;
    int64_t wide[LOOKUPS];
    int32_t narrow[LOOKUPS], slot_of[ROWS], slots[LOOKUPS];
    struct index_found found[ROWS];
    struct index_move moves[ROWS];
    int64_t num_moves;
};

static void must(int status, const struct error *err) {
    if (status) fail_msg("%s", err->text);
}

/* Few rows are hot: the least of three. */
static void draw(struct test *x, int batch) {
    for (int i = 0; i < LOOKUPS; i++) {
        uint64_t row = ROWS - 1;
        for (uint64_t k = 0; k < 3; k++) {
            const uint64_t other = rng_key((uint64_t)batch, 3 * (uint64_t)i + k) % ROWS;
            row = other < row ? other : row;
        }
        x->wide[i] = (int64_t)((row * 7 + 3) % ROWS);
        x->narrow[i] = (int32_t)x->wide[i];
    }
}

static struct index_lookups lookups(const struct test *x, enum id_type type, int64_t begin,
                                    int64_t end) {
    return (struct index_lookups){x->ids.data, type,         begin,       end,
                                  PADDING,     PADDING_SLOT, x->slot.data};
}

static void expect_slots(struct test *x) {
    struct error err;
    must(device_get(x->slots, x->slot.data, sizeof x->slots, &err), &err);
    for (int i = 0; i < LOOKUPS; i++)
        assert_int_equal(x->slots[i],
                         x->wide[i] == PADDING ? PADDING_SLOT : x->slot_of[x->wide[i]]);
}

static void expect_found(const struct test *x, int64_t count, int64_t missing_lookups) {
    bool wanted[ROWS] = {false}, got[ROWS] = {false};
    int64_t missing = 0;
    for (int i = 0; i < LOOKUPS; i++) {
        wanted[x->wide[i]] = x->wide[i] != PADDING;
        missing += x->wide[i] != PADDING && x->slot_of[x->wide[i]] < 0;
    }
    assert_int_equal(missing_lookups, missing);
    for (int64_t k = 0; k < count; k++) {
        const struct index_found *f = &x->found[k];
        assert_true(wanted[f->row] && !got[f->row]);
        assert_int_equal(f->slot, x->slot_of[f->row]);
        got[f->row] = true;
    }
    assert_memory_equal(wanted, got, sizeof got);
}

/* Missing rows come; each takes the slot of one that the batch does not need, or a new one. */
static void move(struct test *x, int64_t count, int32_t *used) {
    bool needed[ROWS] = {false};
    int32_t next = 0;
    x->num_moves = 0;
    for (int64_t k = 0; k < count; k++) needed[x->found[k].row] = true;
    for (int64_t k = 0; k < count; k++) {
        if (x->found[k].slot >= 0) continue;
        int32_t victim = -1, slot = *used;
        for (; k % 2 && next < ROWS; next++)
            if (x->slot_of[next] >= 0 && !needed[next]) {
                victim = next;
                break;
            }
        if (victim >= 0)
            slot = x->slot_of[victim];
        else
            ++*used;
        if (victim >= 0) x->slot_of[victim] = -1;
        x->slot_of[x->found[k].row] = slot;
        x->moves[x->num_moves++] = (struct index_move){x->found[k].row, victim, slot};
    }
}

static void one_batch(struct test *x, int batch, int32_t *used) {
    const enum id_type type = batch % 2 ? ID_INT32 : ID_INT64;
    int64_t count, missing;
    struct error err;
    draw(x, batch / 2 == 1 ? 0 : batch); /* one comes again */
    if (type == ID_INT32)
        must(device_put(x->ids.data, x->narrow, sizeof x->narrow, &err), &err);
    else
        must(device_put(x->ids.data, x->wide, sizeof x->wide, &err), &err);
    const struct index_lookups parts[] = {lookups(x, type, 0, SPLIT),
                                          lookups(x, type, SPLIT, SPLIT),
                                          lookups(x, type, SPLIT, LOOKUPS)};
    for (int i = 0; i < 3; i++)
        must(device_index_look(&x->index, x->stream, &parts[i], &err), &err);
    must(device_index_found(&x->index, x->stream, x->found, &count, &missing, &err), &err);
    expect_slots(x);
    expect_found(x, count, missing);
    move(x, count, used);
    must(device_index_move(&x->index, x->stream, x->moves, x->num_moves, &err), &err);
    for (int i = 0; i < 3; i++)
        must(device_index_settle(&x->index, x->stream, &parts[i], &err), &err);
    must(device_wait(x->stream, &err), &err);
    expect_slots(x);
}

static void as_a_plain_array(void **state) {
    (void)state;
    struct error err;
    for (int order = EMULATION_ASCENDING; order <= EMULATION_RANDOM; order++) {
        struct test *x = must_have(calloc(1, sizeof *x));
        int32_t used = 0;
        must(device_open(&err), &err);
        if (device_facts().emulated) emulation_schedule(order, 3);
        must(device_stream_open(&x->stream, &err), &err);
        must(device_index_open(&x->index, x->stream, ROWS, ROWS, &err), &err);
        must(device_alloc(&x->ids, sizeof x->wide, "ids", &err), &err);
        must(device_alloc(&x->slot, sizeof x->slots, "slots", &err), &err);
        memset(x->slot_of, -1, sizeof x->slot_of);
        for (int b = 0; b < BATCHES; b++) one_batch(x, b, &used);
        assert_true(used < ROWS && device_index_bytes(&x->index) >= ROWS * 4 + ROWS / 8);
        /* An empty batch. */
        int64_t count = 1, missing = 1;
        must(device_index_found(&x->index, x->stream, x->found, &count, &missing, &err), &err);
        assert_true(count == 0 && missing == 0);
        device_index_close(&x->index);
        device_stream_close(x->stream);
        device_free(&x->ids);
        device_free(&x->slot);
        free(x);
    }
}

TESTS(device_index) {
    add_test("as a plain array", as_a_plain_array, NULL, NULL);
    return run_listed("an index of rows in device memory");
}
