/* fakepeer - a node of another version, for tests: joins the bus of a cluster, says hello with the
 * given protocol and build, and prints why it is refused, or that it was taken in.
 *
 *     fakepeer ADDRESS PROTOCOL BUILD [NAMESPACE]        exit 0: refused, 3: taken in, 1: neither
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "net/bus.h"
#include "wire/msg_cluster.h"

enum { PATIENCE_MS = 20000 };

static bool say_hello(struct bus *b, const char *peer, char **argv, const char *name_space) {
    struct msg_hello hello = {.protocol = (u32)strtoul(argv[2], NULL, 10),
                              .build = argv[3],
                              .os = "another system",
                              .cluster = name_space,
                              .name = "fakepeer",
                              .boot = random_u64() | 1,
                              .bus_port = bus_port(b)};
    struct str body = {0};
    wire_encode(msg_table(MSG_HELLO), &hello, &body);
    bool ok = bus_send(b, peer, MSG_HELLO, body.p, body.n, NULL);
    str_deinit(&body);
    return ok;
}

/* The exit status that a message means; -1: none. */
static int judge(const struct bus_event *ev) {
    struct arena mem = {0};
    struct msg_reason r;
    int code = -1;
    if (ev->type == MSG_REFUSED &&
        wire_decode(msg_table(MSG_REFUSED), ev->bytes, ev->n, &mem, &r, NULL)) {
        printf("refused: %s\n", r.text);
        code = 0;
    } else if (ev->type == MSG_HEARTBEAT) {
        printf("taken in\n");
        code = 3;
    }
    arena_deinit(&mem);
    return code;
}

int main(int argc, char **argv) {
    struct err e = {0};
    if (argc < 4) return fprintf(stderr, "usage: fakepeer ADDRESS PROTOCOL BUILD [NAMESPACE]\n"), 2;
    const char *name_space = argc > 4 ? argv[4] : "default";
    struct identity who;
    struct bus_cfg cfg = {.name_space = name_space, .identity = &who};
    struct bus *b = identity_make(&who, &e) ? bus_open(&cfg, &e) : NULL;
    if (!b || !bus_connect(b, argv[1], &e)) return fprintf(stderr, "fakepeer: %s\n", e.msg), 1;
    int code = -1;
    for (u64 end = clock_ms() + PATIENCE_MS; code < 0 && clock_ms() < end; clock_sleep_ms(5)) {
        struct bus_event ev;
        while (code < 0 && bus_recv(b, &ev)) {
            if (ev.kind == BUS_PEER_UP) say_hello(b, ev.peer, argv, name_space);
            if (ev.kind == BUS_DIAL_FAILED) printf("%s: %s\n", ev.address, ev.text);
            if (ev.kind == BUS_MESSAGE) code = judge(&ev);
        }
    }
    bus_close(b);
    return code < 0 ? 1 : code;
}
