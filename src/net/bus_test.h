/* bus_test.h - buses in one process, for bus_test.c and bus_path_test.c alone. */
#pragma once

#include "base/test.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "net/bus_internal.h"

/* A bus and what it was told. */
struct end {
    struct bus *bus;
    char id[IDENTITY_ID_CAP], address[64];
    int n_up, n_down, n_gone, n_failed, n_messages, n_twin;
    char peer[BUS_NODE_ID_MAX + 1], peer_address[SOCK_ADDRESS_CAP], text[400];
    enum bus_reason reason;
    u32 types[4096];
    u8 *last;
    size_t n_last;
    bool echo;
};

/* The identity of a node called `name` in these tests. */
static inline struct identity identity_named(const char *name) {
    struct identity i;
    u8 seed[32];
    sha256_of(name, strlen(name), seed);
    assert_true(identity_of_seed(&i, seed, NULL));
    return i;
}

static u64 bus_test_started; /* of the next one; tests of twins set it */

static inline void end_open(struct end *x, const char *name, const char *secret, const char *ns,
                            u16 port) {
    struct err e = {0};
    struct identity who = identity_named(name);
    struct bus_cfg cfg = {.listen_host = "127.0.0.1",
                          .port = port,
                          .secret = secret,
                          .name_space = ns,
                          .identity = &who,

                          .started = bus_test_started,
                          .peer_timeout_ms = 1500};
    free(x->last);
    *x = (struct end){0};
    str_copy(x->id, sizeof x->id, who.id);
    x->bus = bus_open(&cfg, &e);
    if (!x->bus) fail_msg("%s", e.msg);
    snprintf(x->address, sizeof x->address, "127.0.0.1:%u", bus_port(x->bus));
}

static inline void end_close(struct end *x) {
    bus_close(x->bus);
    x->bus = NULL;
    free(x->last);
    x->last = NULL;
}

static inline void take(struct end *x, const struct bus_event *ev) {
    switch (ev->kind) {
    case BUS_MESSAGE:
        if (x->n_messages < (int)ARRAY_LEN(x->types)) x->types[x->n_messages] = ev->type;
        x->n_messages++;
        free(x->last);
        x->last = malloc(ev->n + 1);
        memcpy(x->last, ev->bytes, ev->n);
        x->n_last = ev->n;
        str_copy(x->peer, sizeof x->peer, ev->peer);
        if (x->echo) bus_send(x->bus, x->peer, ev->type, x->last, x->n_last, NULL);
        break;
    case BUS_PEER_UP:
        x->n_up++;
        str_copy(x->peer, sizeof x->peer, ev->peer);
        str_copy(x->peer_address, sizeof x->peer_address, ev->address);
        break;
    case BUS_PEER_DOWN:
        x->n_down++;
        str_copy(x->text, sizeof x->text, ev->text);
        break;
    case BUS_PEER_GONE: x->n_gone++; break;
    case BUS_TWIN: x->n_twin++; break;
    case BUS_DIAL_FAILED:
        x->n_failed++;
        x->reason = ev->reason;
        str_copy(x->text, sizeof x->text, ev->text);
        break;
    }
}

/* Runs the buses as their owner would until *counter >= want, or the time is over. */
static inline bool run(struct end *x, int n, const int *counter, int want, u32 ms) {
    for (u64 end = clock_ms() + ms; clock_ms() < end && (!counter || *counter < want);) {
        struct pollfd p[8];
        int timeout = 50;
        for (int i = 0; i < n; i++) {
            struct bus_event ev;
            while (x[i].bus && bus_recv(x[i].bus, &ev)) take(&x[i], &ev);
            p[i] = (struct pollfd){.fd = x[i].bus ? bus_fd(x[i].bus) : -1, .events = POLLIN};
            if (x[i].bus) timeout = MIN(timeout, bus_timeout_ms(x[i].bus));
        }
        if (counter && *counter >= want) return true;
        poll(p, (nfds_t)n, timeout);
    }
    return counter && *counter >= want;
}

static inline void meet(struct end x[2], const char *secret) {
    end_open(&x[0], "alpha", secret, "test", 0);
    end_open(&x[1], "beta", secret, "test", 0);
    assert_true(bus_connect(x[0].bus, x[1].address, NULL));
    assert_true(run(x, 2, &x[0].n_up, 1, 3000));
    assert_true(run(x, 2, &x[1].n_up, 1, 3000));
}
