/* daemon.h - asking the node that runs on this machine (or elsewhere) over its HTTP API. Blocks;
 * main thread. */
#pragma once

#include "base/json.h"
#include "cli/opts.h"

struct daemon {
    const char *host; /* "127.0.0.1" */
    u32 port;
    u32 timeout_ms;       /* of a whole call */
    const char *api_key;  /* or NULL: what another machine's node wants for changes */
    bool stops_at_ctrl_c; /* a call ends with ERR_CANCELLED at cli_interrupts, ERR_NET when the node
                           * was not asked yet */
};

/* The options that every command of a node has: --host, --port and --api-key, from the environment
 * SKEIN_API_HOST, SKEIN_API_PORT, SKEIN_API_KEY. */
#define DAEMON_OPTS(d)                                                                     \
    {"host",          OPT_STR,          &(d)->host, "where the node is (127.0.0.1)",       \
     .value = "HOST", .env = "API_HOST"},                                                  \
        {"port",        OPT_U32,         &(d)->port,        "its API port (52415)",        \
         .letter = 'p', .value = "PORT", .env = "API_PORT", .min = 1,                      \
         .max = 65535},                                                                    \
    {                                                                                      \
        "api-key", OPT_STR, &(d)->api_key, "its key, to change things on another machine", \
            .value = "KEY", .env = "API_KEY"                                               \
    }
/* The key is the environment's. */
struct daemon daemon_default(void);
/* "http://127.0.0.1:52415<path>"; IPv6 hosts get their brackets. A host that is HOST:PORT or
 * [HOST]:PORT names its port itself. */
const char *daemon_url(const struct daemon *d, const char *path, char buf[512]);

/* The headers of a request to it: the key and these two whole lines, either of which may be NULL.
 * Points into h and at the lines. */
struct daemon_headers {
    const char *v[4];
    char key[600];
};
const char *const *daemon_headers(const struct daemon *d, const char *line, const char *line2,
                                  struct daemon_headers *h);

/* The reply's JSON, or NULL: ERR_NET says that no node answers there and how to start one; an error
 * reply becomes its message with the code of its status. body NULL: GET. The caller drops the
 * reference. */
json_t *daemon_call(const struct daemon *d, const char *path, const char *body, struct err *e);
/* The same with another method. */
json_t *daemon_method(const struct daemon *d, const char *method, const char *path,
                      const char *body, struct err *e);
/* POST /node/WHAT/NODE: drain, undrain, forget. */
bool daemon_node(const struct daemon *d, const char *what, const char *node, struct err *e);
/* Appends a part of a path or query with what must be escaped escaped. */
void daemon_escape(struct str *out, const char *text);
/* The sentence for a request that found nobody. */
bool daemon_absent(const struct daemon *d, const struct err *why, struct err *e);
/* The message in an OpenAI-shaped error body, else its first line. */
bool daemon_error(int status, const char *body, struct err *e);

/* Text and numbers of an object's member; "" and 0 when it is missing or of another kind. */
const char *daemon_text(const json_t *o, const char *key);
u64 daemon_u64(const json_t *o, const char *key);
