/* GET /events: what changes in the cluster, as an event stream. A client that comes back sends
 * Last-Event-ID and gets what it missed; one that does not keep up is told so and dropped. */
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/arena.h"

enum { BEHIND_MAX_BYTES = 256 << 10, KEEPALIVE_MS = 15000 };

struct stream {
    struct http_answer *answer;
    bool begun;
};

static void begin(struct stream *s) {
    static const char HELLO[] = ": state changes of a skein node; GET /state has the whole\n\n";
    if (s->begun) return;
    s->begun = true;
    http_answer_start(s->answer, 200, "text/event-stream");
    http_answer_keepalive(s->answer, KEEPALIVE_MS, "text/event-stream", ": keep-alive\n\n");
    http_answer_add(s->answer, HELLO, sizeof HELLO - 1);
}

/* On the node's thread, or on the HTTP thread while it catches up; never on both at once. */
static bool on_event(void *ctx, const char *p, size_t n) {
    static const char LATE[] =
        "event: dropped\ndata: {\"type\":\"dropped\",\"text\":\"this client reads too slowly: "
        "connect again with Last-Event-ID to get what is still kept\"}\n\n";
    struct stream *s = ctx;
    begin(s);
    bool stay = p && !http_answer_is_gone(s->answer);
    if (stay && n && http_answer_unsent(s->answer) + n > BEHIND_MAX_BYTES) {
        http_answer_add(s->answer, LATE, sizeof LATE - 1);
        stay = false;
    } else if (stay && n) {
        stay = http_answer_add(s->answer, p, n);
    }
    if (stay) return true;
    http_answer_end(s->answer);
    free(s);
    return false;
}

void api_events_stream(struct events *e, const struct http_req *r, struct http_answer *a) {
    struct fault f = {0};
    const char *last = http_req_header(r, "Last-Event-ID");
    if (!last) last = http_req_query(r, "last_event_id");
    http_answer_header(a, "Cache-Control", "no-cache");
    http_answer_header(a, "X-Accel-Buffering", "no");
    if (strcmp(r->method, "HEAD") == 0) {
        if (!http_answer_whole(a, 200, "text/event-stream", "", 0)) http_answer_end(a);
        return;
    }
    struct stream *s = xcalloc(1, sizeof *s);
    s->answer = a;
    if (events_listen(e, last, on_event, s, &f.e)) return; /* s is its own from now on */
    free(s);
    fault_answer(&f, a);
}

void api_events(struct api *api, const struct http_req *r, const char *rest,
                struct http_answer *a) {
    (void)rest;
    api_events_stream(node_events(api->node), r, a);
}
