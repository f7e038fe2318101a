/* SPDX-License-Identifier: MIT
 *
 * A click model in the style of DLRM whose embeddings are those of libembfuse: several tables, the mean of the
 * rows of each bag, and a small dense part by hand. It shows a whole training loop in C.
 *
 *     cc -O2 dlrm.c $(pkg-config --cflags --libs embfuse) -lm -o dlrm
 *     ./dlrm                        300 steps on ids that it draws
 *     ./dlrm 1000 items.txt customers.txt
 *                                   on recorded ids: a file for each feature; line i of a file has the ids of
 *                                   sample i, separated by blanks
 *
 * Nobody clicked on these ids, so the labels are planted: the sign of a sum of one hashed number per id.
 */
#include <embfuse.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DIM = 16, BATCH = 256, MOST_FEATURES = 16, DRAWN_SAMPLES = 20000, REPORT = 50 };

static void die(const char *what, const char *where) {
    fprintf(stderr, "dlrm: %s: %s\n", where, what);
    exit(1);
}

static void must(int status, const struct embfuse_error *why) {
    if (status) die(why->text, embfuse_strerror(status));
}

static void *allocate(int64_t count, int64_t bytes) {
    void *p = calloc((size_t)count, (size_t)bytes);
    if (!p) die("out of memory", "a table or a batch");
    return p;
}

/* --- ids: those of one feature; sample i has ids[offsets[i]] .. ids[offsets[i+1]-1] */

struct column {
    int64_t samples, lookups, rows;
    int64_t *offsets, *ids;
};

static int64_t *grow(int64_t *array, int64_t count) {
    array = realloc(array, (size_t)(count + 1) * sizeof *array);
    if (!array) die("out of memory", "ids");
    return array;
}

/* Appends to an array of n elements, which is full whenever n is a power of two. */
static void push(int64_t **array, int64_t n, int64_t value) {
    if ((n & (n - 1)) == 0) *array = grow(*array, 2 * n);
    (*array)[n] = value;
}

static void push_id(struct column *c, int64_t id) {
    push(&c->ids, c->lookups++, id);
    if (id >= c->rows) c->rows = id + 1;
}

static struct column read_column(const char *path) {
    struct column c = {0};
    FILE *file = fopen(path, "r");
    if (!file) die("cannot be read", path);
    char *line = NULL, *end;
    size_t size = 0;
    push(&c.offsets, 0, 0);
    while (getline(&line, &size, file) > 0) {
        for (char *p = line;; p = end) {
            const long long id = strtoll(p, &end, 10);
            if (end == p) break;
            if (id < 0 || id > INT32_MAX) die("an id is below 0 or above 2^31-1", path);
            push_id(&c, id);
        }
        if (*end && *end != '\n') die("ids are decimal numbers, separated by blanks", path);
        push(&c.offsets, ++c.samples, c.lookups);
    }
    if (!c.lookups) die("there are no ids", path);
    free(line);
    fclose(file);
    return c;
}

static double uniform(void) { /* [0, 1), xorshift64* */
    static uint64_t x = 42;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    return (double)((x * 0x2545f4914f6cdd1d) >> 11) * 0x1p-53;
}

/* Low ids are drawn more often. */
static struct column draw_column(int64_t rows, int64_t bag) {
    struct column c = {0};
    push(&c.offsets, 0, 0);
    while (c.samples < DRAWN_SAMPLES) {
        for (int64_t i = 0; i < bag; i++) push_id(&c, (int64_t)((double)rows * pow(uniform(), 3)));
        push(&c.offsets, ++c.samples, c.lookups);
    }
    return c;
}

static double planted(int32_t feature, int64_t id) { /* [-1, 1), splitmix64 */
    uint64_t z = ((uint64_t)id * MOST_FEATURES + (uint64_t)feature + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

static int64_t bag_length(const struct column *c, int64_t i) {
    return c->offsets[i % c->samples + 1] - c->offsets[i % c->samples];
}

/* --- a batch: samples `first` and following of all columns, from the start again after the last one */

static void take_batch(const struct column *columns, int32_t features, int64_t first, int64_t **ids,
                       int64_t *offsets, struct embfuse_batch *batch, double *label) {
    int64_t n = 0;
    for (int64_t i = 0; i < BATCH * features; i++)
        n += bag_length(&columns[i / BATCH], first + i % BATCH);
    *ids = grow(*ids, n);
    for (int64_t i = n = 0; i < BATCH; i++) label[i] = 0;
    offsets[0] = 0;
    for (int32_t f = 0; f < features; f++) {
        const struct column *c = &columns[f];
        for (int64_t i = 0; i < BATCH; i++) {
            const int64_t sample = (first + i) % c->samples, end = c->offsets[sample + 1];
            double sum = 0;
            for (int64_t k = c->offsets[sample]; k < end; k++, n++) {
                (*ids)[n] = c->ids[k];
                sum += planted(f, c->ids[k]);
            }
            label[i] += sum / sqrt((double)(end - c->offsets[sample]) + 1);
            offsets[f * BATCH + i + 1] = n;
        }
    }
    for (int64_t i = 0; i < BATCH; i++) label[i] = label[i] > 0;
    batch->ids = *ids;
    batch->lookups = n;
}

/* --- the dense part: logit = bias + sum of <a_f, e_f> + sum over f < g of <e_f, e_g>, with e_f the pooled
 * embedding of feature f, and a_f and bias trained by SGD. Returns the mean log loss, and writes its gradient by e. */

static double dense_part(int32_t features, const float *e, const double *label, double *a,
                         double *bias, double rate, float *grad) {
    const int32_t width = features * DIM;
    double loss = 0, by_bias = 0, by_a[MOST_FEATURES * DIM] = {0};
    for (int64_t i = 0; i < BATCH; i++, e += width, grad += width) {
        double logit = *bias, all[DIM] = {0};
        for (int32_t k = 0; k < width; k++) { /* all: the embeddings of the features so far */
            logit += e[k] * (a[k] + all[k % DIM]);
            all[k % DIM] += e[k];
        }
        loss += log1p(exp(-fabs(logit))) + fmax(logit, 0) - label[i] * logit;
        const double by_logit = (1 / (1 + exp(-logit)) - label[i]) / BATCH;
        for (int32_t k = 0; k < width; k++) {
            grad[k] = (float)(by_logit * (a[k] + all[k % DIM] - e[k]));
            by_a[k] += by_logit * e[k];
        }
        by_bias += by_logit;
    }
    for (int32_t k = 0; k < width; k++) a[k] -= rate * by_a[k];
    *bias -= rate * by_bias;
    return loss / BATCH;
}

/* --- the model */

/* A table per feature: weights drawn, states as the rule wants them. */
static struct embfuse_model *open_model(const struct column *columns, int32_t features,
                                        const char *rule, double rate) {
    struct embfuse_table tables[MOST_FEATURES] = {{0}};
    struct embfuse_feature inputs[MOST_FEATURES] = {{0}};
    struct embfuse_model *model;
    struct embfuse_error why;
    for (int32_t f = 0; f < features; f++) {
        tables[f] = (struct embfuse_table){.rows = columns[f].rows, .dim = DIM, .rule = rule};
        inputs[f] = (struct embfuse_feature){.table = f, .pooling = EMBFUSE_MEAN};
    }
    must(embfuse_model_create(&model, tables, features, inputs, features, NULL, &why), &why);
    for (int32_t f = 0; f < features; f++) {
        for (int32_t a = 0; a < embfuse_array_count(model, f); a++) {
            struct embfuse_array array;
            must(embfuse_array_info(model, f, a, &array, &why), &why);
            float *data = allocate(tables[f].rows, array.row_bytes);
            for (int64_t k = 0; a == 0 && k < tables[f].rows * DIM; k++)
                data[k] = (float)((2 * uniform() - 1) / sqrt(DIM));
            must(embfuse_bind(model, f, a, data, 0, &why), &why);
        }
        must(embfuse_init_states(model, f, &why), &why);
    }
    must(embfuse_set(model, -1, "lr", rate, &why), &why);
    return model;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    const int64_t drawn_rows[] = {20000, 2000, 50}, drawn_bag[] = {8, 2, 1};
    const long steps = argc > 1 ? atol(argv[1]) : 300;
    const int32_t features = argc > 2 ? argc - 2 : 3;
    if (steps < 1 || features > MOST_FEATURES) die("usage: dlrm [STEPS [FILE ...]]", "arguments");
    struct column columns[MOST_FEATURES];
    for (int32_t f = 0; f < features; f++)
        columns[f] = argc > 2 ? read_column(argv[f + 2]) : draw_column(drawn_rows[f], drawn_bag[f]);

    struct embfuse_model *model = open_model(columns, features, "rowwise_adagrad", 0.1);
    double a[MOST_FEATURES * DIM], bias = 0, label[BATCH], loss = 0, busy = 0;
    for (int32_t k = 0; k < features * DIM; k++) a[k] = 2 * uniform() - 1;
    float *embedding = allocate(BATCH * features, DIM * sizeof(float));
    float *grad = allocate(BATCH * features, DIM * sizeof(float));
    int64_t *ids = NULL, *offsets = allocate(BATCH * features + 1, sizeof *offsets);
    struct embfuse_batch batch = {
        .size = sizeof batch, .bags = BATCH, .offsets = offsets, .id_type = EMBFUSE_INT64};
    struct embfuse_error why;
    for (long step = 1; step <= steps; step++) {
        take_batch(columns, features, (step - 1) * BATCH, &ids, offsets, &batch, label);
        const double begin = seconds();
        must(embfuse_forward(model, &batch, embedding, &why), &why);
        loss += dense_part(features, embedding, label, a, &bias, 0.05, grad);
        must(embfuse_step(model, &batch, grad, &why), &why);
        busy += seconds() - begin;
        if (step % REPORT == 0 || step == steps) {
            const double n = (double)((step - 1) % REPORT + 1);
            printf("step %ld: log loss %.4f, %.3f ms per iteration\n", step, loss / n,
                   1e3 * busy / n);
            loss = busy = 0;
        }
    }
    embfuse_model_free(model); /* the arrays of the tables are ours, until the end of the program */
    return 0;
}
