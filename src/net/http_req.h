/* http_req.h - one parsed HTTP request, as a handler sees it.
 *
 * Open data, borrowed: everything it points to lives until the handler returns, and is touched only
 * by the server's HTTP thread. Whoever answers later copies what it needs. */
#pragma once

#include "base/base.h"

struct http_pair {
    const char *name, *value; /* value is "" where a query parameter has none */
};

struct http_req {
    const char *method; /* "GET"; upper case as sent */
    const char *path;   /* percent-decoded, begins with '/', never holds a NUL */
    const char *body;   /* NUL-terminated behind body[0..n_body); "" when there is none */
    size_t n_body;
    const char *remote; /* "192.168.1.7", "::1": the peer's address without port */
    bool is_loopback;   /* the peer is this machine */
    const struct http_pair *headers, *query; /* decoded, in the order sent */
    size_t n_headers, n_query;
};

/* The first header of that name (any case), or the first query parameter of exactly that name; NULL
 * when there is none. */
const char *http_req_header(const struct http_req *r, const char *name);
const char *http_req_query(const struct http_req *r, const char *name);
