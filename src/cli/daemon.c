#include "cli/daemon.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/paths.h"
#include "cli/cli.h"
#include "net/http_client.h"
#include "node/node.h"

enum { CONNECT_MS = 3000, CALL_MS = 30000, REPLY_MAX_BYTES = 16 << 20 };

struct daemon daemon_default(void) {
    return (struct daemon){.host = "127.0.0.1",
                           .port = NODE_API_PORT,
                           .timeout_ms = CALL_MS,
                           .api_key = paths_env("API_KEY")};
}

const char *daemon_url(const struct daemon *d, const char *path, char buf[512]) {
    const char *colon = strchr(d->host, ':');
    bool one = colon && !strchr(colon + 1, ':');
    bool six = colon && !one && d->host[0] != '[';
    if (d->host[0] == '[' ? strstr(d->host, "]:") != NULL : one) /* the port is there already */
        snprintf(buf, 512, "http://%s%s", d->host, path);
    else
        snprintf(buf, 512, "http://%s%s%s:%u%s", six ? "[" : "", d->host, six ? "]" : "", d->port,
                 path);
    return buf;
}

void daemon_escape(struct str *out, const char *text) {
    for (const char *p = text; *p; p++) {
        if (isalnum((unsigned char)*p) || strchr("-._~", *p))
            str_addc(out, *p);
        else
            str_addf(out, "%%%02X", (unsigned char)*p);
    }
}

bool daemon_node(const struct daemon *d, const char *what, const char *node, struct err *e) {
    struct str path = {0};
    str_addf(&path, "/node/%s/", what);
    daemon_escape(&path, node);
    json_t *reply = daemon_call(d, str_z(&path), "", e);
    str_deinit(&path);
    json_decref(reply);
    return reply != NULL;
}

bool daemon_absent(const struct daemon *d, const struct err *why, struct err *e) {
    char url[512];
    return err_set(e, ERR_NET,
                   "no node answers at %s: start one with `skein up`, or name another with --host "
                   "and --port (%s)",
                   daemon_url(d, "", url), why->msg);
}

static enum err_code code_of(int status) {
    for (int c = ERR_NONE + 1; c < ERR_N; c++)
        if (err_http_status((enum err_code)c) == status && c != ERR_FORMAT) return (enum err_code)c;
    return ERR_NET;
}

bool daemon_error(int status, const char *body, struct err *e) {
    json_t *j = json_parse(view_of(body), NULL);
    const char *text = daemon_text(json_object_get(j, "error"), "message");
    if (*text)
        err_set(e, code_of(status), "%s", text);
    else
        err_set(e, code_of(status), "the node answered with status %d: %.*s", status,
                (int)MIN(strcspn(body, "\n"), 200u), body);
    json_decref(j);
    return false;
}

static const char *long_url(const struct daemon *d, const char *path, char buf[4096]) {
    char base[512];
    snprintf(buf, 4096, "%s%s", daemon_url(d, "", base), path);
    return buf;
}

const char *const *daemon_headers(const struct daemon *d, const char *line, const char *line2,
                                  struct daemon_headers *h) {
    u32 n = 0;
    if (line) h->v[n++] = line;
    if (line2) h->v[n++] = line2;
    if (d->api_key && *d->api_key) {
        snprintf(h->key, sizeof h->key, "Authorization: Bearer %s", d->api_key);
        h->v[n++] = h->key;
    }
    h->v[n] = NULL;
    return h->v;
}

struct reply {
    struct str body;
    bool heed; /* Ctrl-C */
};

static bool collect(void *ctx, const char *p, size_t n) {
    struct reply *r = ctx;
    if (n) str_add(&r->body, p, n);
    return r->body.n <= REPLY_MAX_BYTES && !(r->heed && cli_interrupts(false));
}

json_t *daemon_method(const struct daemon *d, const char *method, const char *path,
                      const char *body, struct err *e) {
    char url[4096];
    struct daemon_headers headers;
    const char *type = body ? "Content-Type: application/json" : NULL;
    struct http_client_req q = {.method = method,
                                .url = long_url(d, path, url),
                                .headers = daemon_headers(d, type, NULL, &headers),
                                .body = body,
                                .n_body = body ? strlen(body) : 0,
                                .connect_timeout_ms = CONNECT_MS,
                                .idle_timeout_ms = d->timeout_ms,
                                .total_timeout_ms = d->timeout_ms};
    struct http_client_res r = {0};
    struct reply reply = {.heed = d->stops_at_ctrl_c};
    struct err why = {0};
    json_t *j = NULL;
    bool came = http_client_stream(&q, collect, &reply, &r, &why);
    if (!came && reply.body.n > REPLY_MAX_BYTES)
        err_set(e, ERR_LIMIT, "the node's answer is larger than %d bytes", (int)REPLY_MAX_BYTES);
    else if (!came && why.code == ERR_CANCELLED && !r.was_sent)
        err_set(e, ERR_NET, "stopped before the node was reached");
    else if (!came && why.code == ERR_CANCELLED)
        err_set(e, ERR_CANCELLED, "stopped");
    else if (!came)
        daemon_absent(d, &why, e);
    else if (r.status / 100 != 2)
        daemon_error(r.status, str_z(&r.body), e);
    else if (!(j = json_parse(str_view(&reply.body), e)))
        err_wrap(e, "%s is no skein node", url);
    http_client_res_deinit(&r);
    str_deinit(&reply.body);
    return j;
}

json_t *daemon_call(const struct daemon *d, const char *path, const char *body, struct err *e) {
    return daemon_method(d, NULL, path, body, e);
}

const char *daemon_text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

u64 daemon_u64(const json_t *o, const char *key) {
    json_int_t v = json_integer_value(json_object_get(o, key));
    return v > 0 ? (u64)v : 0;
}
