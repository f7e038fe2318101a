/* SPDX-License-Identifier: MIT
 *
 * libembfuse: the embedding part of a training iteration. Lookup and pooling (forward), and the backward pass fused
 * with the optimizer (step): sum the gradients of each row that a batch looks up, and apply an update rule once to
 * that row and its states. It runs the kernels of the suite, on the host or on a CUDA device.
 *
 *     create a model (tables, features, rules) -> bind the tables' arrays
 *     for each batch: embfuse_forward(), the rest of your network, embfuse_step()
 *
 * The caller owns every array; the library copies none. It keeps only scratch, which grows when a batch needs more, or
 * which the caller gives: embfuse_set_scratch().
 *
 * Errors. Functions that can fail return 0 (EMBFUSE_OK) or another embfuse_status. Their last parameter `why` may be
 * NULL; otherwise it gets one line: what is wrong, where, and what to do. Any of them can return INVALID (a null
 * pointer, no such table, a malformed struct), BUSY and NO_MEMORY; their comments name the rest. After an error no
 * array has changed, and a new model or table is NULL. Only EMBFUSE_DEVICE_ERROR can come after a change: a device
 * that fails does so later; and one error of embfuse_load(), which says so. The library never prints, never ends the
 * program, and outside its models keeps nothing but a mark in children of fork().
 *
 * Structs. `size` is the sizeof the struct, set by the caller; `reserved` is 0. extras/library/README.md lists limits.
 *
 * Threads. Any number of threads may use different models at once. A model takes one call at a time, a call that only
 * reads included: while one is under way, another thread's call changes nothing and returns EMBFUSE_BUSY.
 * embfuse_array_count() and embfuse_array_info() may be called at any time; embfuse_model_free() must be the last call.
 *
 * fork(). A child has no threads but the one that called fork(). After a call on the host with several threads, such
 * calls return EMBFUSE_FORKED in children: OpenMP would wait for the missing threads for ever. Models with
 * options.threads = 1 go on, and embfuse_save() does with any number of threads. If the program itself used OpenMP
 * before fork(), the library does not know.
 *
 * Versions. While the version begins with 0, a new minor version may change this interface, and the soname with it.
 */
#ifndef EMBFUSE_H
#define EMBFUSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMBFUSE_API __attribute__((visibility("default")))

#define EMBFUSE_VERSION_MAJOR 0
#define EMBFUSE_VERSION_MINOR 2
#define EMBFUSE_VERSION_PATCH 0
#define EMBFUSE_VERSION                                                                            \
    (EMBFUSE_VERSION_MAJOR * 10000 + EMBFUSE_VERSION_MINOR * 100 + EMBFUSE_VERSION_PATCH)

/* The version of the library that runs, as EMBFUSE_VERSION, and as "0.2.0". */
EMBFUSE_API int embfuse_version(void);
EMBFUSE_API const char *embfuse_version_text(void);

/* These numbers do not change. */
enum embfuse_status {
    EMBFUSE_OK = 0,
    EMBFUSE_INVALID = 1,      /* an argument is wrong */
    EMBFUSE_BAD_BATCH = 2,    /* ids or offsets are wrong: `why` names feature, bag and lookup */
    EMBFUSE_UNKNOWN = 3,      /* no such kernel, rule, hyper-parameter or array */
    EMBFUSE_REFUSED = 4,      /* no kernel for this model or batch, or a state of another model */
    EMBFUSE_NO_MEMORY = 5,    /* of the host or the device */
    EMBFUSE_DEVICE_ERROR = 6, /* there is no device, or it reports an error */
    EMBFUSE_FILE_ERROR = 7,   /* a file cannot be read or written, or is damaged */
    EMBFUSE_BUSY = 8,         /* another thread is in a call of this model */
    EMBFUSE_FORKED = 9,       /* a child of fork() has not the threads for this call */
};

/* A few words for a status; never NULL. */
EMBFUSE_API const char *embfuse_strerror(int status);

struct embfuse_error {
    char text[512];
};

/* Types of elements. fp8 is E4M3. */
enum embfuse_type { EMBFUSE_FP32, EMBFUSE_BF16, EMBFUSE_FP16, EMBFUSE_FP8 };
/* 0 is no type, so that a forgotten one is refused. */
enum embfuse_id_type { EMBFUSE_INT64 = 1, EMBFUSE_INT32 = 2 };
/* How the step writes types narrower than fp32. Stochastic bits depend on seed, table, step, row and column alone. */
enum embfuse_rounding { EMBFUSE_NEAREST, EMBFUSE_STOCHASTIC };
/* As modes sum, mean and max of torch.nn.EmbeddingBag; none: a sequence, every lookup has an output row.
 * Of equal elements the first one is the maximum, and gets the gradient. */
enum embfuse_pooling { EMBFUSE_SUM, EMBFUSE_MEAN, EMBFUSE_NONE, EMBFUSE_MAX };
enum embfuse_place { EMBFUSE_HOST, EMBFUSE_DEVICE };

/* One table. Everything but rows, dim and rule may be 0: fp32 weights and momenta. */
struct embfuse_table {
    int64_t rows;
    int32_t dim;           /* elements per row */
    int32_t weight_type;   /* enum embfuse_type */
    int32_t momentum_type; /* fp32 or bf16: of states that are averages of gradients */
    int32_t rounding;      /* enum embfuse_rounding */
    const char *rule;      /* as in rules/README.md: "rowwise_adagrad", "adam" ... */
};

/* One input feature. All 0: it sums rows of table 0, without padding. Several features may read one table, and the
 * rule gets the sum over them. Output and gradient of a bag lie grad_offset + bag*grad_stride elements behind the
 * start of output and gradient; those of lookup i of a sequence grad_offset + i*grad_stride, where i counts the
 * feature's own lookups. If grad_stride is 0 for all features, pooled features are the columns of one matrix
 * [bags][sum of their dims]; behind it sequences follow one another, [lookups][dim] each. */
struct embfuse_feature {
    int32_t table;
    int32_t pooling; /* enum embfuse_pooling */
    /* 1: lookups of row padding_id do not count. A sequence's output of padding is the row, and the row
     * gets no gradient. 0: there is no padding, and padding_id is 0 or -1. */
    int32_t has_padding;
    int32_t reserved;
    int64_t padding_id;
    int64_t grad_offset, grad_stride;
};

/* What a step on the host does with inf and NaN in a gradient. TAKE: nothing. COUNT: it reads the gradient once more,
 * and counts the lookups that get some: embfuse_nonfinite_read(). SKIP: it counts, and if one gets some, it leaves out
 * the whole step, as torch.amp.GradScaler does: it returns EMBFUSE_OK, but arrays and numbers of steps stay as they
 * are, and only weight_grad is written. Sums that overflow, and inf in lookup_weights, are not seen. */
enum embfuse_nonfinite { EMBFUSE_NONFINITE_TAKE, EMBFUSE_NONFINITE_COUNT, EMBFUSE_NONFINITE_SKIP };

struct embfuse_options {
    size_t size;
    const char *kernel;  /* of the step: as `embfuse list` names it; NULL or "auto": see below */
    const char *forward; /* the same of the forward */
    int32_t place;       /* enum embfuse_place: where arrays are, and kernels run */
    int32_t threads;     /* of the host; 0: as many as OpenMP would take */
    int32_t grad_type;   /* of gradients and outputs: EMBFUSE_FP32, EMBFUSE_FP16 or EMBFUSE_BF16 */
    int32_t nonfinite;   /* enum embfuse_nonfinite */
    uint64_t rounding_seed; /* of stochastic rounding */
};

struct embfuse_model; /* opaque */

/* Makes a model without arrays. options NULL: all of it 0. Errors: UNKNOWN (rule or kernel), REFUSED (the
 * kernel cannot run these rules, or nonfinite on a device), DEVICE_ERROR (no device). */
EMBFUSE_API int embfuse_model_create(struct embfuse_model **out, const struct embfuse_table *tables,
                                     int32_t num_tables, const struct embfuse_feature *features,
                                     int32_t num_features, const struct embfuse_options *options,
                                     struct embfuse_error *why);

/* Frees the model. NULL: does nothing. On a device it waits for the model's work. */
EMBFUSE_API void embfuse_model_free(struct embfuse_model *model);

/* --- arrays of a table: the weights, then the states of its rule */

struct embfuse_array {
    const char *name; /* "weight", "row_state", "state.0", "state.1" ... */
    char states[64];  /* their names in the rule's formula, "a,b" for two; "" for weights */
    int32_t type;     /* enum embfuse_type */
    int32_t width;    /* elements per row: the array is [rows][width] */
    int64_t row_bytes;
};

/* The number of arrays of a table; -1: no such table. */
EMBFUSE_API int32_t embfuse_array_count(const struct embfuse_model *model, int32_t table);

/* Describes array number `array`, from 0, the weights. */
EMBFUSE_API int embfuse_array_info(const struct embfuse_model *model, int32_t table, int32_t array,
                                   struct embfuse_array *out, struct embfuse_error *why);

/* The caller keeps the array at data, `stride` bytes from row to row (0: row_bytes), until the model is freed or
 * another one is bound. Both are aligned to the elements; on a device to 16 bytes if row_bytes is a multiple of 16. */
EMBFUSE_API int embfuse_bind(struct embfuse_model *model, int32_t table, int32_t array, void *data,
                             int64_t stride, struct embfuse_error *why);

/* Writes the values of a new table into all states of a table, which are bound and on the host. On a device the caller
 * writes them; embfuse_initial() has the values. */
EMBFUSE_API int embfuse_init_states(struct embfuse_model *model, int32_t table,
                                    struct embfuse_error *why);

/* The value of a new row in column `column` of a state. */
EMBFUSE_API int embfuse_initial(const struct embfuse_model *model, int32_t table, int32_t array,
                                int32_t column, double *out, struct embfuse_error *why);

/* --- hyper-parameters and steps: a change counts from the next step on, and needs no new plan */

/* Sets a hyper-parameter of a table's rule; table -1: of every table that has it. Rules have those
 * of rules/README.md, rounded to fp32, and "lr". Errors: INVALID (`why` has the range of values), UNKNOWN (no
 * such hyper-parameter). */
EMBFUSE_API int embfuse_set(struct embfuse_model *model, int32_t table, const char *name,
                            double value, struct embfuse_error *why);
EMBFUSE_API int embfuse_get(const struct embfuse_model *model, int32_t table, const char *name,
                            double *out, struct embfuse_error *why);

/* The name of hyper-parameter number i, from 0, of a table's rule; NULL behind the last one, or without such a
 * table. It may be called at any time. */
EMBFUSE_API const char *embfuse_hyper_name(const struct embfuse_model *model, int32_t table,
                                           int32_t i);

/* The steps that a table has taken. Bias corrections and stochastic rounding depend on the number of
 * a step; a resumed training sets it. Rules that count steps in a row (adam_lazy_global, adam_row_bias,
 * rowwise_adagrad_counter, rowwise_adagrad_ema, rowwise_adagrad_global_decay,
 * rowwise_rmsprop_ar) take 2^24 at most. */
EMBFUSE_API int embfuse_get_steps(const struct embfuse_model *model, int32_t table, int64_t *out,
                                  struct embfuse_error *why);
EMBFUSE_API int embfuse_set_steps(struct embfuse_model *model, int32_t table, int64_t steps,
                                  struct embfuse_error *why);

/* --- learning-rate schedules: the rate of step t as a closed form
 *
 * t is the number of steps before this one: the first step has t = 0. k is the number of milestones that are <= t. As
 * torch.optim.lr_scheduler, in double, but for the last bits: PyTorch multiplies the rate of the step before. A closed
 * form needs no state: a resumed training goes on with the number of its steps. */

enum embfuse_schedule_kind {
    EMBFUSE_SCHEDULE_STEP = 1,    /* StepLR: base * gamma^floor(t/steps) */
    EMBFUSE_SCHEDULE_MULTISTEP,   /* MultiStepLR: base * gamma^k */
    EMBFUSE_SCHEDULE_EXPONENTIAL, /* ExponentialLR: base * gamma^t */
    EMBFUSE_SCHEDULE_CONSTANT,    /* ConstantLR: base*from while t < steps, then base */
    EMBFUSE_SCHEDULE_LINEAR,     /* LinearLR: base*from to base*to in `steps` steps, then base*to */
    EMBFUSE_SCHEDULE_POLYNOMIAL, /* PolynomialLR: base * (1 - min(t, steps)/steps)^power */
    /* CosineAnnealingLR: least + (base - least) * (1 + cos(pi*t/steps)) / 2. Its period is 2*steps. */
    EMBFUSE_SCHEDULE_COSINE,
    /* SequentialLR: parts[k]. A part begins at its own t = 0 and from base, whatever rate the one before it has. */
    EMBFUSE_SCHEDULE_SEQUENCE,
};

/* Only the fields that a kind names are read. */
struct embfuse_schedule {
    size_t size;
    int32_t kind; /* enum embfuse_schedule_kind */
    int32_t num_milestones;
    int64_t steps;   /* at least 1; of constant and linear at least 0 */
    double gamma;    /* not negative; all numbers are finite */
    double from, to; /* factors */
    double power;    /* not negative */
    double least;    /* a rate, not a factor */
    /* [num_milestones], from 0 (of a sequence from 1), not falling; one that is there twice counts twice */
    const int64_t *milestones;
    const struct embfuse_schedule *parts; /* [num_milestones + 1], none of them a sequence */
};

/* The rate of step t, a pure function. NaN: t is below 0, or the schedule is malformed. */
EMBFUSE_API double embfuse_schedule_rate(const struct embfuse_schedule *schedule, double base,
                                         int64_t t);

/* Sets "lr" of a table (-1: of every table) to the rate of its next step: t is the steps that it has taken. Call it
 * before each step. Over epochs: embfuse_set() of embfuse_schedule_rate(). Errors: INVALID (no rate for the rule). */
EMBFUSE_API int embfuse_schedule_set(struct embfuse_model *model, int32_t table,
                                     const struct embfuse_schedule *schedule, double base,
                                     struct embfuse_error *why);

/* --- batches */

/* A batch in CSR form. The bags of feature 0 come first, then those of feature 1, and so on; the lookups of bag q of all
 * of them are ids[offsets[q]] .. ids[offsets[q+1]-1]. Ids are rows of the feature's table. All arrays are where the model's arrays are, except
 * feature_lookups. They may change after a call on the host returns; on a device, after the stream has passed it. */
struct embfuse_batch {
    size_t size;
    int64_t bags; /* of each feature, unless feature_bags says them */
    /* Of all features; with `padded` the size of the arrays. 0: the output is zeros, and the step changes nothing, unless its kernel moves all
     * rows, as cpu_dense does with adam. */
    int64_t lookups;
    const void *ids;             /* [lookups] */
    const int64_t *offsets;      /* [bags of all features + 1], from 0 to lookups */
    const float *lookup_weights; /* [lookups] per-sample weights; NULL: all are 1 */
    int32_t id_type;             /* enum embfuse_id_type */
    int32_t trusted;             /* 1: ids and offsets are right, and are not checked */
    /* 1: the last offset may be less than lookups. What lies behind it in ids, lookup_weights and weight_grad is
     * padding: neither read nor written. So batches that differ in lookups can have arrays of one size. */
    int32_t padded;
    void *stream; /* a cudaStream_t, on a device */
    /* [num_features] in host memory: the lookups of each feature of a trusted batch on a device.
     * NULL, or not trusted: the call waits for the stream, and reads them from offsets. */
    const int64_t *feature_lookups;
    /* [num_features] in host memory: the bags of each feature, 0 or more (TorchRec's variable batch). NULL: all have
     * `bags`. A batch without any bags has no ids and no offsets, and its output is empty. */
    const int64_t *feature_bags;
    /* With EMBFUSE_MAX, otherwise NULL: as many elements as the output, in the same places. A forward
     * writes, and a step of the same batch reads, the number in the bag, from 0, of the lookup that has
     * the maximum; -1 where no lookup counts. Nobody reads those of features with other poolings. On the
     * host a step checks them unless the batch is trusted. There are no lookup_weights then. */
    int32_t *winners;
    /* [lookups] or NULL: a step writes the gradient of the per-sample weights here first, the dot of a lookup's
     * gradient and its row; for a mean divided by the lookups that count; 0 for padding. */
    float *weight_grad;
};

/* Looks up and pools. output: elements of grad_type where `struct embfuse_feature` says. Elements
 * between output rows keep their bits. On the host the call returns when it is done; on a device it
 * enqueues on the batch's stream, but a batch that is not trusted waits for the stream.
 * Errors: INVALID (weights are not bound), BAD_BATCH, REFUSED, DEVICE_ERROR. */
EMBFUSE_API int embfuse_forward(struct embfuse_model *model, const struct embfuse_batch *batch,
                                void *output, struct embfuse_error *why);

/* Sums the gradient of every row that the batch looks up, and applies the rules to those rows. grad:
 * elements of grad_type, laid out as the output. Each table takes one step, touched or not. As
 * embfuse_forward() otherwise, and INVALID if any state is not bound. */
EMBFUSE_API int embfuse_step(struct embfuse_model *model, const struct embfuse_batch *batch,
                             const void *grad, struct embfuse_error *why);

/* Brings rows up to date that owe something for the steps since their last one, as weight decay of all rows: those that
 * the batch looks up, before its forward, or with batch NULL all rows, before the weights are used elsewhere. A step does
 * so for the rows that it touches. No step is counted, and a second call changes nothing. Rules: adam_lazy_global,
 * rowwise_adagrad_global_decay. On a device all rows are those of a batch that has all of them. Errors: as embfuse_step(),
 * and REFUSED (another rule; all rows on a device). */
EMBFUSE_API int embfuse_catch_up(struct embfuse_model *model, const struct embfuse_batch *batch,
                                 struct embfuse_error *why);

/* Writes batch->weight_grad alone, as embfuse_step() does first, and changes no table: for programs that take
 * the step later. Errors: as embfuse_forward(), and INVALID without lookup_weights or weight_grad. */
EMBFUSE_API int embfuse_weight_grad(struct embfuse_model *model, const struct embfuse_batch *batch,
                                    const void *grad, struct embfuse_error *why);

/* What the gradients of a table's features have had since the model was made. Errors: INVALID (nothing is counted). */
struct embfuse_nonfinite_counts {
    int64_t steps;   /* with inf or NaN that a lookup of the table got, or would have got */
    int64_t bags;    /* whose gradient had some; of a sequence these are lookups */
    int64_t lookups; /* that got it: all of these bags but padding; of a max the winners of it */
};
EMBFUSE_API int embfuse_nonfinite_read(const struct embfuse_model *model, int32_t table,
                                       struct embfuse_nonfinite_counts *out,
                                       struct embfuse_error *why);

/* Elements of the output and the gradient of such a batch. It reads offsets, as a step does. */
EMBFUSE_API int embfuse_output_elements(struct embfuse_model *model,
                                        const struct embfuse_batch *batch, int64_t *out,
                                        struct embfuse_error *why);

/* --- monitor: what steps on the host do to the rows of a table, seen from inside the step */

struct embfuse_watched_row {
    uint32_t touches;   /* steps that touched the row; stays at its largest value */
    uint32_t last_step; /* number of the last of those, modulo 2^32 */
    float last_norm;    /* L2 norm of its summed gradient in that step, as the rule got it */
    float largest_norm; /* of all those steps */
};

struct embfuse_monitor {
    int64_t rows;                    /* of the table */
    int64_t watched;                 /* of those; all other figures are of these */
    int64_t never;                   /* never touched (cold start) */
    int64_t stale;                   /* touched, but not in the last `recent` steps */
    int64_t dead;                    /* touched, and the last summed gradient was 0 */
    int64_t outliers;                /* their largest norm is more than 10 times norm_p99 */
    int64_t touches;                 /* all of them together */
    double never_share, never_error; /* never / watched, and its standard error for all rows */
    /* Percentiles of the norm over touches, to about 6 %; 0 without touches. */
    double norm_p50, norm_p90, norm_p99, norm_largest;
};

/* Watches one row in `every`, a power of two, from now on; 0: no row. The first one is drawn. Memory of the
 * library: 16 bytes for each watched row, and 16 KiB. 1 is exact, and takes up to another cache line for each
 * touched row; extras/library/README.md has the cost of both. Errors: REFUSED (arrays on a device, or a kernel
 * that sweeps all rows or steps once per lookup). */
EMBFUSE_API int embfuse_monitor_start(struct embfuse_model *model, int32_t table, int64_t every,
                                      struct embfuse_error *why);

/* The figures so far. Errors: INVALID (the table is not watched). */
EMBFUSE_API int embfuse_monitor_read(const struct embfuse_model *model, int32_t table,
                                     int64_t recent, struct embfuse_monitor *out,
                                     struct embfuse_error *why);

/* Record i is that of row *first + i * every. Records change with every step, and are valid until the next start. */
EMBFUSE_API int embfuse_monitor_rows(const struct embfuse_model *model, int32_t table,
                                     const struct embfuse_watched_row **rows, int64_t *count,
                                     int64_t *first, struct embfuse_error *why);

/* --- state: a training in a file, to go on with later
 *
 * A state is all that the next steps depend on: weights, states of the rules, steps, hyper-parameters, and the seed of
 * stochastic rounding. So a training that is saved and loaded goes on with the same bits, with any number of threads
 * if its kernel has the same bits for all of them. extras/library/README.md has the format, safetensors. Not in it:
 * options and features of the model, which the program gives again; figures of the monitor and of nonfinite; and what
 * is the caller's: averages, counters of admission, the position in the data. Give all files of a save a name with the
 * number of steps, save the state last, and keep those of the last two saves. */

/* Saves the model to a file, whose folder exists. A crash or a loss of power at any moment leaves the file that was
 * there or the new one, whole: PATH.part is written, synced (fsync) and renamed, and the folder is synced. Memory of
 * the library: 4 MiB, or one row. A save replaces nothing but a state that the model could load. Of two saves to one
 * file at once the second is refused, where the file system has locks. On a device, wait for the streams of the
 * model's steps first. Errors: INVALID (an array is not bound), FILE_ERROR (what was there stays as it was; or `why`
 * says that all is saved, but the folder could not be synced), REFUSED (the path names a state of another model or
 * version, or a folder; or the header would have more than 100 MB), DEVICE_ERROR. */
EMBFUSE_API int embfuse_save(const struct embfuse_model *model, const char *path,
                             struct embfuse_error *why);

/* Loads a file into a model with the same tables; all arrays are bound. The saved hyper-parameters, steps and seed
 * replace those of the model. First the file is verified with its checksums, then it is read again into the arrays: if
 * it changes in between, or the disk fails, `why` says that the arrays are half read. On a device, wait for the model's
 * streams first. Errors: INVALID (an array is not bound), FILE_ERROR (the file is damaged or cannot be read), REFUSED
 * (other tables: rows, dim, rule, types or rounding; or another version), DEVICE_ERROR. */
EMBFUSE_API int embfuse_load(struct embfuse_model *model, const char *path,
                             struct embfuse_error *why);

/* --- averages of weights: SWA and EMA, of arrays on the host
 *
 *     for each batch: embfuse_forward(), embfuse_average_before_step(), embfuse_step(),
 *                     and embfuse_average_update() after every step whose weights are a snapshot
 *     embfuse_average_finish(), and the average can be read
 *
 * As torch.optim.swa_utils: the first snapshot is copied. A lazy average (row_updates is not NULL) reads only the rows
 * that a batch looks up: a row that has not changed for k snapshots enters them all at once, but before a step changes
 * it: in embfuse_average_before_step(). The result is that of reading all rows at every update, but for roundings. */

enum embfuse_average_kind {
    EMBFUSE_SWA = 1, /* the mean of all snapshots. k at once: (n*average + k*weight) / (n + k) */
    EMBFUSE_EMA,     /* decay*average + (1-decay)*weight. k at once: with decay^k for decay */
};

/* The average of one table, without anything of the library's own: who keeps this struct and its arrays can go on with
 * it later. A table may have several. updates, row_updates and covered are 0 in the beginning. */
struct embfuse_average {
    size_t size;
    int32_t table;
    int32_t kind; /* enum embfuse_average_kind */
    double decay; /* of EMA: 0 <= decay < 1 */
    /* [rows][dim] the average; what is there before the first snapshot is not read. It overlaps nothing
     * else, but its rows may lie between other rows of the same stride. */
    float *data;
    int64_t stride;  /* bytes from row to row; 0: they lie close together */
    int64_t updates; /* snapshots so far; n_averaged in PyTorch */
    /* [rows] the snapshots that each row's average has. NULL: not lazy, every update reads all rows. */
    int64_t *row_updates;
    int64_t covered; /* of a lazy average: the last step of the table that it knows of */
};

/* Brings the rows of lazy averages up to date that the batch of the next step looks up, while they have their old
 * weights. Call it before each embfuse_step() from the first update on; before that, and for averages that are not
 * lazy, it does nothing. Errors: INVALID (weights are not bound or on a device, or a step was taken without this call:
 * then a lazy average is lost), BAD_BATCH, REFUSED (the kernel also changes rows that the batch does not look up). */
EMBFUSE_API int embfuse_average_before_step(struct embfuse_model *model,
                                            struct embfuse_average *averages, int32_t count,
                                            const struct embfuse_batch *batch,
                                            struct embfuse_error *why);

/* The weights as they are now are one more snapshot. Only averages that are not lazy read them at once. */
EMBFUSE_API int embfuse_average_update(struct embfuse_model *model,
                                       struct embfuse_average *averages, int32_t count,
                                       struct embfuse_error *why);

/* Brings all rows of lazy averages up to date; training may go on. A model with data as its weights evaluates it. */
EMBFUSE_API int embfuse_average_finish(struct embfuse_model *model,
                                       const struct embfuse_average *averages, int32_t count,
                                       struct embfuse_error *why);

/* --- admission: an id trains only after enough touches, on the host
 *
 * A pass over the ids of a batch, before the forward. A touch is one lookup that is not padding. First all touches of
 * the batch are counted; then lookups of ids that are not admitted become padding. So the forward gives nothing for
 * them (in a sequence the padding row), the step leaves their rows alone, and all lookups of an id in a batch are
 * treated alike, by any number of threads. An admitted id stays so. extras/library/README.md compares other systems. */

enum embfuse_admission_kind {
    /* From the batch on in which the touches of an id reach the threshold. */
    EMBFUSE_ADMIT_COUNT = 1,
    /* Each touch admits the id with this probability, and the touch that fills its counter in any case. The
     * draw depends only on seed, table, id and the number of the touch. */
    EMBFUSE_ADMIT_CHANCE,
};

/* The admission to one table. Its counters are the caller's, all 0 in the beginning, and are the whole
 * state: who keeps them can go on later. A counter stops at the value that means admitted: the threshold, or
 * for chance the largest value of its type. */
struct embfuse_admission {
    size_t size;
    int32_t table;
    int32_t kind;       /* enum embfuse_admission_kind */
    int64_t threshold;  /* of count: from 1 to the largest value of a counter */
    double probability; /* of chance: above 0, at most 1 */
    uint64_t seed;      /* of chance and of hashes */
    void *counters;     /* [num_counters] unsigned, aligned to their size */
    int64_t num_counters;
    int32_t counter_bytes; /* 1, 2 or 4 */
    /* 0: id i has counter i. 1 to 64: a counting Bloom filter, for count only: an id has this many counters, and its
     * touches are at most the least of them. So an id is never admitted too late; it is admitted too early with about
     * the probability (1 - exp(-hashes*ids/num_counters))^hashes, where ids is the number of different ids so far. */
    int32_t hashes;
    int32_t frozen; /* 1: nothing is counted, for evaluation */
    int32_t reserved;
};

/* Counts a batch of a model, and writes its ids to ids_out [lookups], of batch->id_type; it may be
 * batch->ids. Ids of tables without an admission stay as they are. rejected, which may be NULL, gets the
 * number of lookups that became padding. Errors: INVALID (two admissions are of one table, a feature of it
 * has no padding, there are fewer counters than rows, or the model is on a device), BAD_BATCH. */
EMBFUSE_API int embfuse_admit(struct embfuse_model *model,
                              const struct embfuse_admission *admissions, int32_t count,
                              const struct embfuse_batch *batch, void *ids_out, int64_t *rejected,
                              struct embfuse_error *why);

/* The same for ids without a model, such as hashed ids that get a row only when they are admitted: ids [lookups] of
 * type id_type (enum embfuse_id_type). padding_id, which may be negative, is not counted; ids that are not admitted
 * become it. threads 0: as many as OpenMP would take. Errors: BAD_BATCH (there is no counter for an id). */
EMBFUSE_API int embfuse_admit_ids(const struct embfuse_admission *admission, const void *ids,
                                  int32_t id_type, int64_t lookups, int64_t padding_id,
                                  int32_t threads, void *ids_out, int64_t *rejected,
                                  struct embfuse_error *why);

/* Counters and hashes of a Bloom filter that after so many different ids, at least 1, admits one too early
 * with about this probability, between 0 and 1. */
EMBFUSE_API int embfuse_admission_filter(int64_t ids, double probability, int64_t *num_counters,
                                         int32_t *hashes, struct embfuse_error *why);

/* --- kernels and scratch */

/* The kernel that a step of this batch runs. "auto" is cpu_fused on the host and cuda_fused on a device.
 * Results of different kernels can differ in their last bits where sums are inexact. Errors: as embfuse_step(). */
EMBFUSE_API int embfuse_step_kernel(struct embfuse_model *model, const struct embfuse_batch *batch,
                                    const char **name, struct embfuse_error *why);

/* The bytes of scratch that a step of this batch needs. Errors: as embfuse_step(). */
EMBFUSE_API int embfuse_scratch_bytes(struct embfuse_model *model,
                                      const struct embfuse_batch *batch, size_t *bytes,
                                      struct embfuse_error *why);

/* The model uses this scratch and allocates none: a step that needs more fails with NO_MEMORY. data:
 * where the model's arrays are, aligned to 256 bytes. NULL: back to the model's own. */
EMBFUSE_API int embfuse_set_scratch(struct embfuse_model *model, void *data, size_t bytes,
                                    struct embfuse_error *why);

/* --- frozen tables: weights as a server keeps them, mapped and read-only, without a model. `embfuse export` writes
 * them; extras/library/frozen/frozen.h has the formats. */

struct embfuse_frozen; /* opaque */

struct embfuse_frozen_info {
    size_t size;
    int64_t rows;
    int64_t row_bytes;
    const void *data; /* [rows][row_bytes], until the table is closed */
    /* "fp32", "bf16", "fp16", "fp8" or "int8": dim codes (uint8), then scale and bias (fp32); element =
     * scale * code + bias, as in FBGEMM's fused 8-bit rowwise tables. */
    const char *type;
    int32_t dim;
    int32_t reserved;
};

/* Maps a table: NAME (NAME.rows and NAME.table), or FILE.npy. verify 1: reads all rows once, and compares their
 * checksum, which a .npy does not have. The file must not be written while it is mapped: replace it by another of its
 * name, and open that. Errors: FILE_ERROR (a file is missing, damaged or of another format). */
EMBFUSE_API int embfuse_frozen_open(struct embfuse_frozen **out, const char *name, int32_t verify,
                                    struct embfuse_error *why);

/* NULL: does nothing. */
EMBFUSE_API void embfuse_frozen_close(struct embfuse_frozen *table);

/* Describes a table. */
EMBFUSE_API int embfuse_frozen_describe(const struct embfuse_frozen *table,
                                        struct embfuse_frozen_info *out, struct embfuse_error *why);

/* Looks up and pools a batch of one feature on the host: output[bags][dim], or [lookups][dim] with EMBFUSE_NONE. It
 * has the bits of embfuse_forward() on the same rows; int8 sums weight * (scale * code + bias) in fp32. padding_id:
 * lookups of this row do not count; -1: none. threads: of this call, at least 1, which is best for a few rows. Any
 * number of threads may look up in one table at once. Errors: BAD_BATCH. */
EMBFUSE_API int embfuse_frozen_lookup(const struct embfuse_frozen *table,
                                      const struct embfuse_batch *batch, int32_t pooling,
                                      int64_t padding_id, int32_t threads, float *output,
                                      struct embfuse_error *why);

#ifdef __cplusplus
}
#endif
#endif
