/* GET /: the web page, compiled into the program from dashboard/index.html. */
#include "api/api_impl.h"

/* Made by the Makefile. */
extern const unsigned char PAGE_INDEX[];
extern const unsigned PAGE_INDEX_BYTES;

void api_page(struct api *api, const struct http_req *r, const char *rest, struct http_answer *a) {
    (void)api, (void)r, (void)rest;
    http_answer_header(a, "Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                       "connect-src 'self'; img-src data:");
    http_answer_header(a, "Cache-Control", "no-cache");
    if (!http_answer_whole(a, 200, "text/html; charset=utf-8", PAGE_INDEX, PAGE_INDEX_BYTES))
        http_answer_end(a);
}
