/* SPDX-License-Identifier: MIT
 *
 * What a machine or a device can do at this moment. harness/measure/ceiling.h measures it on the
 * host, harness/device/device_ceiling.h on a device.
 */
#pragma once

struct ceiling {
    double copy_gbs; /* stream copy, bytes read + bytes written, as STREAM counts */
    double
        rmw_gbs; /* rows read, multiplied by one, written back, in random or ascending order, prefetched in
                           the fastest of some ways */
    double random_gbs; /* the same in random order; 0: not measured */
    double
        gather_gbs; /* gradient rows of random lookups (of a forward and the like: their table rows) read and
                           summed, from warm caches where they fit, prefetched in the fastest of some
                           ways or not at all; 0: not measured */
    double latency_ns;  /* of one thread that reads random rows, each after the one before; 0: not
                           measured */
    double pingpong_ns; /* one way between two threads' caches; < 0 with one thread. A virtual
                           machine's cores may move, and then share a last-level cache or not */
};
