#include "net/http_req.h"

#include <string.h>
#include <strings.h>

const char *http_req_header(const struct http_req *r, const char *name) {
    for (size_t i = 0; i < r->n_headers; i++) {
        if (strcasecmp(r->headers[i].name, name) == 0) return r->headers[i].value;
    }
    return NULL;
}

const char *http_req_query(const struct http_req *r, const char *name) {
    for (size_t i = 0; i < r->n_query; i++) {
        if (strcmp(r->query[i].name, name) == 0) return r->query[i].value;
    }
    return NULL;
}
