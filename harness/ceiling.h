/* SPDX-License-Identifier: MIT
 *
 * The speed that a machine or a device reaches at this moment. harness/measure/ceiling.h measures it
 * on the host, harness/device/device_ceiling.h on a device.
 */
#pragma once

struct ceiling {
    double copy_gbs; /* stream copy, bytes read + bytes written, as STREAM counts */
    /* Rows are read, multiplied by one and written back, in random or ascending order, prefetched in the
     * fastest of some ways. random_gbs: in random order; 0: not measured. */
    double rmw_gbs, random_gbs;
    /* Gradient rows of random lookups (table rows if the operation gathers those) are read and summed, from
     * warm caches where they fit, prefetched in the fastest of some ways or not at all; 0: not measured. */
    double gather_gbs;
    double latency_ns;  /* reads of random rows by one thread, one by one; 0: not measured */
    double pingpong_ns; /* one way between two threads' caches; < 0 with one thread. A virtual
                           machine's cores may move, and then share a last-level cache or not */
};
