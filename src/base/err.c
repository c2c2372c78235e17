#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row a code; the order is enum err_code's. */
static const struct {
    const char *name;
    const char *openai_type;
    int http;
} ROWS[ERR_N] = {
    [ERR_NONE] = {"none", "none", 200},
    [ERR_FORMAT] = {"bad_format", "invalid_request_error", 400},
    [ERR_LIMIT] = {"limit_exceeded", "invalid_request_error", 400},
    [ERR_UNSUPPORTED] = {"unsupported", "invalid_request_error", 400},
    [ERR_ARG] = {"invalid_value", "invalid_request_error", 400},
    [ERR_CONTEXT] = {"context_length_exceeded", "invalid_request_error", 400},
    [ERR_AUTH] = {"invalid_api_key", "authentication_error", 401},
    [ERR_NOT_FOUND] = {"not_found", "not_found_error", 404},
    [ERR_TOO_LARGE] = {"request_too_large", "invalid_request_error", 413},
    [ERR_IO] = {"io_error", "server_error", 500},
    [ERR_INTERNAL] = {"internal_error", "server_error", 500},
    [ERR_MEMORY] = {"insufficient_memory", "server_error", 507},
    [ERR_NET] = {"network_error", "server_error", 502},
    [ERR_BUSY] = {"overloaded", "server_error", 503},
    [ERR_CANCELLED] = {"cancelled", "server_error", 499},
};

void assert_fail(const char *file, int line, const char *cond) {
    fprintf(stderr, "skein: internal error: %s:%d: %s\n", file, line, cond);
    abort();
}

bool err_set(struct err *e, enum err_code code, const char *fmt, ...) {
    if (!e) return false;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    return false;
}

bool err_wrap(struct err *e, const char *fmt, ...) {
    if (!e) return false;
    char old[sizeof e->msg];
    memcpy(old, e->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n + 2 < sizeof e->msg) {
        size_t left = sizeof e->msg - (size_t)n;
        snprintf(e->msg + n, left, ": %.*s", (int)(left - 3), old);
    }
    return false;
}

bool err_errno(struct err *e, enum err_code code, const char *fmt, ...) {
    int no = errno;
    if (!e) return false;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->msg)
        snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(no));
    return false;
}

const char *err_openai_type(enum err_code code) {
    ASSERT((u32)code < ERR_N);
    return ROWS[code].openai_type;
}

int err_http_status(enum err_code code) {
    ASSERT((u32)code < ERR_N);
    return ROWS[code].http;
}

const char *err_name(enum err_code code) {
    ASSERT((u32)code < ERR_N);
    return ROWS[code].name;
}
