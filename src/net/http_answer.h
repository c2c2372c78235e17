/* http_answer.h - the answer to one HTTP request, given at once or later, whole or as a stream.
 *
 * A handler receives an answer with each request. Whoever holds it must close it exactly once, with
 * http_answer_whole or http_answer_file (when that returns true), http_answer_end or
 * http_answer_abort, on any thread; after that the pointer is dead. Every function may be called
 * from any thread, none blocks: bytes go to a bounded buffer that the HTTP thread empties.
 *
 * Client gone: when the client closes or half-closes the connection, or reads so slowly that the
 * buffer passes its limit, the server calls on_gone once, within a second even if nothing is being
 * sent. What is written after that is dropped; the holder still closes the answer.
 *
 * Order of calls: header*, then either whole, or start, add*, end. */
#pragma once

#include "base/base.h"

struct http_answer;

/* Asks to be told when the client is gone. fn runs on a server thread with the server's lock held:
 * it must return at once and must not call http_answer functions. It is never called after the
 * answer was closed, and at once (before this returns) when the client has gone already. */
void http_answer_on_gone(struct http_answer *a, void (*fn)(void *ctx), void *ctx);
bool http_answer_is_gone(struct http_answer *a);

/* Adds a response header; ignored once the answer has started. Copies. No CR, LF or NUL (asserted).
 */
void http_answer_header(struct http_answer *a, const char *name, const char *value);

/* The whole answer with Content-Length; closes `a` and returns true. Returns false, and leaves `a`
 * open, when a stream has started already (see keepalive): the caller then puts its message into
 * the stream. Copies the body. content_type may be NULL when n is 0. */
bool http_answer_whole(struct http_answer *a, int status, const char *content_type,
                       const void *body, size_t n) MUST_CHECK;

/* The same with n bytes of an open file from `offset` on, as they are when they are sent. Takes fd,
 * also when it returns false. */
bool http_answer_file(struct http_answer *a, int status, const char *content_type, int fd,
                      u64 offset, u64 n) MUST_CHECK;

/* Begins a stream (chunked, or until close for HTTP/1.0). No effect when it has begun. */
void http_answer_start(struct http_answer *a, int status, const char *content_type);
/* Appends to the stream, which must have started. False when the client is gone (bytes dropped). */
bool http_answer_add(struct http_answer *a, const void *p, size_t n);
/* Bytes that were added and that the system has not taken yet: how far a client is behind. */
size_t http_answer_unsent(struct http_answer *a);
/* Ends the stream properly once all bytes are sent; closes `a`. */
void http_answer_end(struct http_answer *a);
/* Cuts the connection without a proper end, so that the client sees a failure; closes `a`. */
void http_answer_abort(struct http_answer *a);

/* From now on the server appends `text` (copied) whenever nothing was added for every_ms. When the
 * stream has not begun by then, it is begun with status 200 and content_type. So a request that
 * fails within every_ms still gets its own HTTP status, and a long wait keeps proxies and clients
 * alive. */
void http_answer_keepalive(struct http_answer *a, u32 every_ms, const char *content_type,
                           const char *text);
