#include "cli/session.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "kernels/kv.h"
#include "ops/ops_cpu.h"

enum { CLOSE_MS = 1000, QUIET_LOAD_MS = 500 };

/* The next frame whose body is decoded into *msg (of the size that `cap` says) in `a`; 0 when
 * Ctrl-C came first, or on failure with *e. A frame of a type that carries no news for us is
 * skipped. */
static u32 hear(struct session *s, bool heed_wake, struct arena *a, void *msg, size_t cap,
                struct err *e) {
    struct frame f;
    for (;;) {
        int got = child_wait(s->child, -1, heed_wake ? s->wake_fd : -1, &f, e);
        if (got < 0) return 0;
        if (got == 0 && heed_wake && cli_interrupts(false)) {
            err_set(e, ERR_CANCELLED, "stopped");
            return 0;
        }
        const struct wire_table *t = got ? msg_table(f.type) : NULL;
        if (!t || t->size_bytes > cap) continue;
        arena_reset(a);
        return wire_decode(t, f.body, f.n, a, msg, e) ? f.type : 0;
    }
}

static bool failed(u32 code, const char *text, struct err *e) {
    return err_set(e, code > ERR_NONE && code < ERR_N ? (enum err_code)code : ERR_INTERNAL, "%s",
                   text);
}

union loaded {
    struct msg_described described;
    struct msg_progress progress;
    struct msg_ready ready;
    struct msg_failed failed;
};

static void show_progress(const struct msg_progress *p, u64 since_ms, bool *shown) {
    if (clock_ms() - since_ms < QUIET_LOAD_MS) return;
    fprintf(stderr, "\rloading %u/%u layers ", p->done, p->total);
    *shown = true;
}

/* Waits for `type` into *out; the runner's own failure becomes *e. */
static bool await(struct session *s, u32 type, union loaded *out, bool show, struct err *e) {
    u64 since = clock_ms();
    bool shown = false;
    u32 got;
    do {
        got = hear(s, true, &s->arena, out, sizeof *out, e);
        if (got == MSG_PROGRESS && show) show_progress(&out->progress, since, &shown);
        if (got == MSG_FAILED) {
            failed(out->failed.code, out->failed.text, e);
            got = 0;
        }
    } while (got && got != type);
    if (shown) fprintf(stderr, "\r%*s\r", 32, "");
    return got == type;
}

static bool load(struct session *s, const struct session_cfg *cfg, struct err *e) {
    union loaded in;
    enum kv_type kv_type;
    if (!kv_type_read(cfg->kv_type, &kv_type, e) || !ops_cpu_act_bits(cfg->act_bits, e))
        return false;
    child_send(s->child, MSG_DESCRIBE, &(struct msg_describe){.path = cfg->path});
    if (!await(s, MSG_DESCRIBED, &in, false, e)) return false;
    bool has_template = in.described.has_template;
    struct msg_load m = {.instance_id = "local",
                         .path = cfg->path,
                         .n_ranks = 1,
                         .layer_end = in.described.n_layers,
                         .n_ctx = cfg->n_ctx,
                         .n_seq_max = 1,
                         .n_threads = cfg->n_threads,
                         .kv_type = kv_type,
                         .act_bits = cfg->act_bits,
                         .cpu_mask = cfg->cpu_mask};
    child_send(s->child, MSG_LOAD, &m);
    if (!await(s, MSG_READY, &in, cfg->show_loading && isatty(STDERR_FILENO), e)) return false;
    s->ready = in.ready;
    s->ready.model.has_template = has_template;
    return true;
}

bool session_open(struct session *s, const struct session_cfg *cfg, int wake_fd, struct err *e) {
    *s = (struct session){.wake_fd = wake_fd};
    s->child = child_spawn(NULL, cfg->label, e);
    if (s->child && load(s, cfg, e)) return true;
    session_close(s);
    return false;
}

void session_close(struct session *s) {
    child_close(s->child, CLOSE_MS);
    arena_deinit(&s->arena);
    *s = (struct session){0};
}

bool session_alive(const struct session *s) {
    return child_fd(s->child) >= 0;
}

union answer {
    struct msg_token token;
    struct msg_done done;
    struct msg_request_error error;
    struct msg_failed failed;
};

bool session_generate(struct session *s, struct msg_generate *m, session_text_fn *text, void *ctx,
                      struct msg_done *done, struct err *e) {
    struct arena a = {0};
    union answer in;
    bool ok = false, cancelled = false, going = true;
    m->id = ++s->last_id;
    child_send(s->child, MSG_GENERATE, m);
    while (going) {
        struct err why = {0};
        u32 got = hear(s, !cancelled, &a, &in, sizeof in, &why);
        if (got == MSG_TOKEN && in.token.id == m->id && *in.token.text) text(ctx, in.token.text);
        if (got == 0 && why.code == ERR_CANCELLED && !cancelled) {
            cancelled =
                true; /* the runner answers with MSG_DONE; a second Ctrl-C does not wait for it */
            child_send(s->child, MSG_CANCEL, &(struct msg_cancel){m->id});
            continue;
        }
        if (got == 0) going = failed(why.code, why.msg, e);
        if (got == MSG_FAILED) going = failed(in.failed.code, in.failed.text, e);
        if (got == MSG_REQUEST_ERROR && in.error.id == m->id)
            going = failed(in.error.code, in.error.text, e);
        if (got != MSG_DONE || in.done.id != m->id) continue;
        *done = in.done;
        done->stop = "";
        ok = true;
        going = false;
    }
    arena_deinit(&a);
    return ok;
}
