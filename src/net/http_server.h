/* http_server.h - an HTTP/1.1 server: libmicrohttpd behind a handler callback.
 *
 * Two threads belong to it: the HTTP thread parses, calls the handler and sends; the watch thread
 * accepts connections, notices clients that left while nothing is sent to them, and runs keep-alive
 * timers. The handler runs on the HTTP thread, must not block, and is given each request once its
 * body is complete. Answers may come later, from any thread (http_answer.h).
 *
 * What the server refuses by itself, with an OpenAI-shaped JSON body where a reply is possible: a
 * body over the limit (413, never buffered; an upload under way is read and thrown away so that the
 * client gets to see the reply), Content-Length given twice or together with Transfer-Encoding
 * (400), a missing Host (400), headers over about 12 KiB (431), more bodies at once than its memory
 * allows (503), and connections beyond its limits (closed). SIGPIPE is ignored for the process. */
#pragma once

#include "base/err.h"
#include "net/http_answer.h"
#include "net/http_req.h"

struct http_server;

typedef void http_handler(const struct http_req *r, struct http_answer *a, void *ctx);

struct http_server_cfg {
    const char *host; /* NULL, "" or "localhost": 127.0.0.1 and ::1; "*": every address; or one
                         address or name */
    u16 port;         /* 0: any free one */
    http_handler *handler;
    void *ctx;
    size_t body_max_bytes;   /* 0: 32 MiB */
    size_t bodies_max_bytes; /* all requests together; 0: 256 MiB */
    size_t buffer_max_bytes; /* unsent bytes of one stream before its client counts as gone; 0: 1
                                MiB */
    u32 n_connections_max;   /* 0: 1000, or fewer when the process may not open as many files */
    u32 idle_timeout_ms;     /* a connection between requests, or a request that stalls; 0: 60 s */
};

/* Listens before it returns. NULL and *e: ERR_ARG for a bad host, ERR_IO naming host:port when the
 * port is taken (with what to do about it) or can't be opened. */
struct http_server *http_server_start(const struct http_server_cfg *cfg, struct err *e);
/* Stops listening, tells the holders of open answers that their clients are gone, closes all
 * connections and joins both threads. Blocks for a second at most. Answers still held stay valid
 * until closed. */
void http_server_stop(struct http_server *s);

u16 http_server_port(const struct http_server *s);
/* Where it can be reached from this machine: "http://127.0.0.1:52415". Lives as long as the server.
 */
const char *http_server_url(const struct http_server *s);
/* Requests whose answer is not finished. */
u32 http_server_n_open(struct http_server *s);
