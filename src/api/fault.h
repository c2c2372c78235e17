/* fault.h - an error on its way to an HTTP client: status, OpenAI type and code, and the parameter
 * it is about. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "net/http_answer.h"

struct fault {
    struct err e;
    int status;     /* 0: as the code says */
    char param[96]; /* "" = null */
    char code[48];  /* "" = err_name(e.code) */
};

/* Both return false. The parameter is a name as the client wrote it, "messages[3].content". */
bool fault_set(struct fault *f, enum err_code code, const char *param, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* A well-formed request for something that is not there (yet): 400 `unsupported_parameter`. */
bool fault_unsupported(struct fault *f, const char *param, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* An error of the node about a model or request. */
struct fault fault_of(const struct err *e);

/* {"error":{...}} */
void fault_json(const struct fault *f, struct str *out);
/* The whole answer, with Retry-After where the client should come again; closes it. When a stream
 * has begun, the error becomes its last event. */
void fault_answer(const struct fault *f, struct http_answer *a);
