/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>

#include "build_info.h"
#include "extras/library/model.h"

int embfuse_version(void) {
    return EMBFUSE_VERSION;
}

const char *embfuse_version_text(void) {
    return BUILD_VERSION;
}

const char *embfuse_strerror(int status) {
    switch (status) {
    case EMBFUSE_OK: return "fine";
    case EMBFUSE_INVALID: return "invalid argument";
    case EMBFUSE_BAD_BATCH: return "ids or offsets of the batch are wrong";
    case EMBFUSE_UNKNOWN: return "unknown kernel, rule, hyper-parameter or array";
    case EMBFUSE_REFUSED:
        return "the kernel cannot run this model or batch, or a saved state does not fit";
    case EMBFUSE_NO_MEMORY: return "out of memory";
    case EMBFUSE_DEVICE_ERROR: return "no device, or an error of the device";
    case EMBFUSE_FILE_ERROR: return "a file cannot be read or written, or is damaged";
    case EMBFUSE_BUSY: return "another thread is in a call of this model";
    case EMBFUSE_FORKED: return "a child of fork() has no threads for this call";
    default: return "unknown status";
    }
}

int said(struct embfuse_error *why, int status, const char *format, ...) {
    if (!why) return status;
    char text[sizeof why->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    escape_controls(text, why->text, sizeof why->text);
    return status;
}
