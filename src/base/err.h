/* err.h - how a failure caused by the world (a file, a peer, a user) travels upwards.
 *
 * A function that can fail returns bool, or a pointer that may be NULL, and takes `struct err *e`
 * last. The one who detects the failure writes the sentence with err_set; callers add what they
 * were doing with err_wrap; whoever gives up logs it or maps the code to an exit status or an HTTP
 * status. `e` may be NULL where the caller does not care. Plain data: copy it, keep it, no owner.
 */
#pragma once

#include "base/base.h"

enum err_code {
    ERR_NONE = 0,
    ERR_FORMAT,      /* malformed bytes: file, template, JSON, message           HTTP 400 */
    ERR_LIMIT,       /* more than a stated limit allows                           HTTP 400 */
    ERR_UNSUPPORTED, /* well-formed, but something skein can't do (named)         HTTP 400 */
    ERR_ARG,         /* a bad option or parameter                                 HTTP 400 */
    ERR_CONTEXT,     /* prompt longer than the context window                     HTTP 400 */
    ERR_AUTH,        /* key missing or wrong                                      HTTP 401 */
    ERR_NOT_FOUND,   /* model, file, node, route                                  HTTP 404 */
    ERR_TOO_LARGE,   /* body over the limit                                       HTTP 413 */
    ERR_IO,          /* the operating system said no (errno text in the sentence) HTTP 500 */
    ERR_INTERNAL,    /* our mistake, found at run time                            HTTP 500 */
    ERR_MEMORY,      /* does not fit: the sentence says needed and available      HTTP 507 */
    ERR_NET,         /* a peer or server did not answer, or answered nonsense     HTTP 502 */
    ERR_BUSY,        /* queue full, not ready yet                                 HTTP 503 */
    ERR_CANCELLED,   /* the asker went away                                       HTTP 499 */
    ERR_N
};

struct err {
    enum err_code code;
    char msg[1020];
};

/* Both always return false, so that `return err_set(e, ...)` ends a failing function. */
bool err_set(struct err *e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Puts "<text>: " before the message that is there. */
bool err_wrap(struct err *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* As err_set, with ": <text of errno>" behind it. Call it before anything else can change errno. */
bool err_errno(struct err *e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The OpenAI error `type` and HTTP status that belong to a code. */
const char *err_openai_type(enum err_code code);
int err_http_status(enum err_code code);
/* A stable lower-case word ("not_found") for logs and JSON `code`. */
const char *err_name(enum err_code code);
