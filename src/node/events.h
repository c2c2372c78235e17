/* events.h - what changed in the cluster, as this node saw it: the latest events, numbered, and who
 * listens. Kinds are those of cluster.h, and downloads and links of this node. Prompts, answers,
 * tokens and metrics are no events.
 *
 * Each event is a ready text for an event stream (HTML standard, "Server-sent events"):
 *     id: 5f3c9a21-42
 *     event: node_joined
 *     data: {"id":"5f3c9a21-42","time":"...","type":"node_joined","node":"...",...}
 * The first part of an id is new with each process. events_put belongs to the node's thread; the
 * others to any. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { EVENTS_KEPT = 512, EVENTS_LISTENERS_MAX = 64 };

struct events;

struct events *events_new(u64 boot);
/* Nobody listens any more. */
void events_free(struct events *e);

/* Begins an event: returns its object, to which members are added; events_end sends it. */
struct str *events_begin(struct events *e, const char *type);
void events_end(struct events *e);

/* Called with each event's text, under the list's lock, so it must not call events_*. n 0: a look
 * whether the listener is still there (about once a second). False: it is not called again. p NULL:
 * the node stops, this is the last call. */
typedef bool events_fn(void *ctx, const char *p, size_t n);
/* A look comes at once, so that the listener can begin. Then come the events behind `last_id` (what
 * the client heard last; NULL or "": none of them), or, when it is not known or too old, a "reset"
 * event: what it knows may be stale. ERR_BUSY when too many listen or the node stops: then fn is
 * never called. */
bool events_listen(struct events *e, const char *last_id, events_fn *fn, void *ctx,
                   struct err *err);
void events_look(struct events *e);  /* drops listeners that are gone; now and then */
void events_close(struct events *e); /* last calls to all; later events_listen fails */
/* The id of the latest event. */
void events_last_id(struct events *e, char out[32]);
