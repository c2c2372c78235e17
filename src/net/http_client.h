/* http_client.h - HTTP requests that this program makes: libcurl behind two calls.
 *
 * Both block the calling thread and may be used from several threads at once. Proxy variables
 * (http_proxy, https_proxy, no_proxy) and the system's CA store are honoured as curl does; requests
 * to loopback addresses never use a proxy. Redirects are followed (10 at most, http and https
 * only). Credentials are dropped when a redirect leaves the host. */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct http_client_req {
    const char *method; /* NULL: GET, or POST when there is a body */
    const char *url;
    const char *const *headers; /* "Name: value", ended by NULL; may be NULL */
    const void *body;
    size_t n_body;
    u32 connect_timeout_ms; /* 0: 5 s */
    u32 idle_timeout_ms;    /* no byte for so long is a failure; 0: 30 s */
    u32 total_timeout_ms;   /* 0: none */
    size_t body_max_bytes;  /* of the reply; 0: 16 MiB. More is ERR_LIMIT. Not for streams. */
};

struct http_client_res {
    int status;
    char content_type[128]; /* "" when there is none */
    struct str body;        /* NUL-terminated when not empty */
    bool was_sent;          /* the server was reached, whether it answered or not */
};
void http_client_res_deinit(struct http_client_res *r);

/* One request and its whole reply. True whenever a reply came, whatever its status; false and *e
 * (ERR_NET naming the host and what went wrong, ERR_LIMIT, ERR_ARG for a bad URL) when none came.
 * Zero or deinit *out before; deinit it after. */
bool http_client_fetch(const struct http_client_req *q, struct http_client_res *out, struct err *e);

/* Called with each piece of a 2xx body as it arrives, on the calling thread; false cancels. With n
 * == 0 it is called about every 100 ms while nothing arrives, so that a waiting caller can cancel.
 */
typedef bool http_client_chunk(void *ctx, const char *p, size_t n);

/* Streams the reply. A reply with another status than 2xx is collected in *out instead (at most 64
 * KiB) and is no failure: look at out->status. ERR_CANCELLED when the callback said stop. */
bool http_client_stream(const struct http_client_req *q, http_client_chunk *chunk, void *ctx,
                        struct http_client_res *out, struct err *e);

/* Feeds SSE bytes in any pieces, calls fn for each event's data (lines joined by \n, comments
 * skipped); fn returns false to stop. Bounded: an event over 1 MiB is an error. Zeroed is a valid
 * start. */
struct http_sse {
    struct str line, data;
};
bool http_sse_feed(struct http_sse *s, const char *p, size_t n,
                   bool (*fn)(void *ctx, const char *data, size_t n), void *ctx, struct err *e);
void http_sse_deinit(struct http_sse *s);
