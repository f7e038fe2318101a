/* SPDX-License-Identifier: MIT
 *
 * Many reads and writes of a file at random places, as many at a time as the disk likes: by io_uring where the kernel
 * allows it (containers often do not), otherwise by threads that call pread() and pwrite(). One thread reads 15,000
 * blocks of 4 KiB per second from an NVMe disk of a virtual machine, 32 reads in flight 80,000.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/error.h"

enum io_engine { IO_URING, IO_THREADS };

extern const char *const io_engine_names[];

struct io_request {
    int64_t at; /* bytes from the beginning of the file */
    void *data;
    size_t bytes; /* of a file with O_DIRECT: all three are multiples of its block */
};

struct io;

/* depth: requests in flight, 1 to 1024. Fails if the kernel refuses the engine; IO_THREADS it never refuses. */
struct io *io_open(enum io_engine engine, int depth, struct error *err);
/* The first engine that works. */
struct io *io_open_any(int depth, struct error *err);
void io_close(struct io *io);

enum io_engine io_engine(const struct io *io);

/* Reads or writes all of them, in any order, and waits. They must not overlap if they write. path: for messages. Fails
 * after all that was in flight has ended, with the first error: the file's end comes too soon, the disk is full, ... */
int io_read(struct io *io, int fd, const char *path, const struct io_request *requests,
            int64_t count, struct error *err);
int io_write(struct io *io, int fd, const char *path, const struct io_request *requests,
             int64_t count, struct error *err);
