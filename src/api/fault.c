#include "api/fault.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"

bool fault_set(struct fault *f, enum err_code code, const char *param, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    *f = (struct fault){.e.code = code};
    vsnprintf(f->e.msg, sizeof f->e.msg, fmt, ap);
    va_end(ap);
    str_copy(f->param, sizeof f->param, param ? param : "");
    return false;
}

bool fault_unsupported(struct fault *f, const char *param, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    *f = (struct fault){.e.code = ERR_UNSUPPORTED};
    vsnprintf(f->e.msg, sizeof f->e.msg, fmt, ap);
    va_end(ap);
    str_copy(f->param, sizeof f->param, param);
    str_copy(f->code, sizeof f->code, "unsupported_parameter");
    return false;
}

struct fault fault_of(const struct err *e) {
    struct fault f = {.e = *e}; /* e may lie in the fault that this is assigned to */
    if (e->code == ERR_NONE) f.e.code = ERR_INTERNAL;
    if (e->code == ERR_NOT_FOUND) {
        str_copy(f.code, sizeof f.code, "model_not_found");
        str_copy(f.param, sizeof f.param, "model");
    }
    if (e->code == ERR_CONTEXT) str_copy(f.param, sizeof f.param, "messages");
    return f;
}

void fault_json(const struct fault *f, struct str *out) {
    str_addz(out, "{\"error\":{");
    json_put_str(out, "message", f->e.msg);
    json_put_str(out, "type", err_openai_type(f->e.code));
    json_put_str(out, "param", f->param[0] ? f->param : NULL);
    json_put_str(out, "code", f->code[0] ? f->code : err_name(f->e.code));
    str_addz(out, "}}");
}

void fault_answer(const struct fault *f, struct http_answer *a) {
    struct str s = {0};
    fault_json(f, &s);
    int status = f->status ? f->status : err_http_status(f->e.code);
    if (status == 503) http_answer_header(a, "Retry-After", "2");
    if (!http_answer_whole(a, status, "application/json", s.p, s.n)) {
        http_answer_add(a, "data: ", 6);
        str_addz(&s, "\n\ndata: [DONE]\n\n");
        http_answer_add(a, s.p, s.n);
        http_answer_end(a);
    }
    str_deinit(&s);
}
