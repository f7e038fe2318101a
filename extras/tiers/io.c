/* SPDX-License-Identifier: MIT */
#include "extras/tiers/io.h"

#include <errno.h>
#include <liburing.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/memory.h"

enum { DEPTH_MOST = 1024 };

const char *const io_engine_names[] = {[IO_URING] = "io_uring", [IO_THREADS] = "threads"};

struct io {
    enum io_engine engine;
    int depth;
    int broken; /* the kernel has refused what was submitted: its error */
    struct io_uring ring;
    size_t *done;    /* [depth] bytes of the request that each place works on */
    int64_t *number; /* [depth] its number */
};

struct run {
    struct io *io;
    int fd;
    const char *path;
    bool writes;
    const struct io_request *requests;
    int64_t count;
};

static int failed(const struct run *r, int64_t at, int number, struct error *err) {
    return fail(err, "%s: cannot %s at byte %lld: %s", r->path, r->writes ? "write" : "read",
                (long long)at,
                number      ? strerror(number)
                : r->writes ? "nothing was written"
                            : "the file ends there");
}

/* --- threads */

static int move(const struct run *r, const struct io_request *x, int64_t *at) {
    for (size_t done = 0; done < x->bytes;) {
        *at = x->at + (int64_t)done;
        char *data = (char *)x->data + done;
        const ssize_t n = r->writes ? pwrite(r->fd, data, x->bytes - done, *at)
                                    : pread(r->fd, data, x->bytes - done, *at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : -1;
        done += (size_t)n;
    }
    return 0;
}

static int run_threads(const struct run *r, struct error *err) {
    int64_t where = 0;
    int number = 0;
    const int threads = r->count < r->io->depth ? (int)r->count : r->io->depth;
    /* They wait for the disk, not for a CPU. */
#pragma omp parallel for num_threads(threads > 0 ? threads : 1) schedule(dynamic)
    for (int64_t i = 0; i < r->count; i++) {
        int64_t at = 0;
        int before, own;
#pragma omp atomic read
        before = number;
        own = before ? 0 : move(r, &r->requests[i], &at);
        if (own)
#pragma omp critical(io_failed)
            if (number == 0) {
                where = at;
#pragma omp atomic write
                number = own;
            }
    }
    return number ? failed(r, where, number < 0 ? 0 : number, err) : 0;
}

/* --- io_uring: a place in the ring works on one request until all of its bytes have moved */

static void submit(const struct run *r, int place) {
    struct io *io = r->io;
    const struct io_request *x = &r->requests[io->number[place]];
    struct io_uring_sqe *e = io_uring_get_sqe(&io->ring);
    char *data = (char *)x->data + io->done[place];
    const unsigned bytes = (unsigned)(x->bytes - io->done[place]);
    const uint64_t at = (uint64_t)x->at + io->done[place];
    if (r->writes)
        io_uring_prep_write(e, r->fd, data, bytes, at);
    else
        io_uring_prep_read(e, r->fd, data, bytes, at);
    io_uring_sqe_set_data64(e, (uint64_t)place);
}

/* Takes what has come: returns true if the place is free for another request. */
static bool take(const struct run *r, int place, int result, int *number, int64_t *where) {
    struct io *io = r->io;
    const struct io_request *x = &r->requests[io->number[place]];
    const bool again = result == -EINTR || result == -EAGAIN;
    if (result > 0) io->done[place] += (size_t)result;
    if (result > 0 && io->done[place] == x->bytes) return true;
    if (*number == 0 && !again && result <= 0) {
        *number = result ? -result : -1;
        *where = x->at + (int64_t)io->done[place];
    }
    if (*number) return true;
    submit(r, place);
    return false;
}

/* The kernel takes no more. Waits until it is done with what it has; the rest stays in the ring, which nobody may submit
 * again. */
static int give_up(const struct run *r, int in_flight, int number, struct error *err) {
    struct io_uring *ring = &r->io->ring;
    struct io_uring_cqe *e;
    int status = 0;
    in_flight -= (int)io_uring_sq_ready(ring);
    while (in_flight > 0 && (status == 0 || status == -EINTR)) {
        status = io_uring_wait_cqe(ring, &e);
        if (status) continue;
        io_uring_cqe_seen(ring, e);
        in_flight--;
    }
    r->io->broken = number;
    return fail(err, "%s: io_uring: %s", r->path, strerror(number));
}

static int run_uring(const struct run *r, struct error *err) {
    struct io *io = r->io;
    int64_t next = 0, where = 0;
    int in_flight = 0, number = 0;
    if (io->broken) return fail(err, "%s: io_uring: %s", r->path, strerror(io->broken));
    for (; in_flight < io->depth && next < r->count; in_flight++) {
        io->number[in_flight] = next++;
        io->done[in_flight] = 0;
        submit(r, in_flight);
    }
    while (in_flight > 0) {
        struct io_uring_cqe *e;
        const int status = io_uring_submit_and_wait(&io->ring, 1);
        if (status < 0 && status != -EINTR) return give_up(r, in_flight, -status, err);
        while (io_uring_peek_cqe(&io->ring, &e) == 0) {
            const int place = (int)io_uring_cqe_get_data64(e), result = e->res;
            io_uring_cqe_seen(&io->ring, e);
            if (!take(r, place, result, &number, &where)) continue;
            in_flight--;
            if (number || next == r->count) continue;
            io->number[place] = next++;
            io->done[place] = 0;
            submit(r, place);
            in_flight++;
        }
    }
    return number ? failed(r, where, number < 0 ? 0 : number, err) : 0;
}

/* --- both */

static int run(const struct run *r, struct error *err) {
    for (int64_t i = 0; i < r->count; i++)
        if (r->requests[i].bytes == 0 || r->requests[i].bytes > INT32_MAX)
            return fail(err, "%s: a request of %zu bytes", r->path, r->requests[i].bytes);
    return r->io->engine == IO_URING ? run_uring(r, err) : run_threads(r, err);
}

int io_read(struct io *io, int fd, const char *path, const struct io_request *requests,
            int64_t count, struct error *err) {
    return run(&(struct run){io, fd, path, false, requests, count}, err);
}

int io_write(struct io *io, int fd, const char *path, const struct io_request *requests,
             int64_t count, struct error *err) {
    return run(&(struct run){io, fd, path, true, requests, count}, err);
}

struct io *io_open(enum io_engine engine, int depth, struct error *err) {
    if (depth < 1 || depth > DEPTH_MOST)
        return fail(err, "%d requests in flight: say 1 to %d", depth, DEPTH_MOST), NULL;
    struct io *io = must_have(calloc(1, sizeof *io));
    io->engine = engine;
    io->depth = depth;
    if (engine == IO_THREADS) return io;
    const int status = io_uring_queue_init((unsigned)depth, &io->ring, 0);
    if (status) {
        free(io);
        return fail(err, "io_uring: %s", strerror(-status)), NULL;
    }
    io->done = must_have(calloc((size_t)depth, sizeof *io->done));
    io->number = must_have(calloc((size_t)depth, sizeof *io->number));
    return io;
}

struct io *io_open_any(int depth, struct error *err) {
    struct io *io = io_open(IO_URING, depth, err);
    return io ? io : io_open(IO_THREADS, depth, err);
}

void io_close(struct io *io) {
    if (!io) return;
    if (io->engine == IO_URING) io_uring_queue_exit(&io->ring);
    free(io->done);
    free(io->number);
    free(io);
}

enum io_engine io_engine(const struct io *io) {
    return io->engine;
}
