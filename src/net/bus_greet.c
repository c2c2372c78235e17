#include <string.h>

#include "base/random.h"
#include "net/bus_internal.h"

struct bus_greeting bus_greet_own(const struct bus *b) {
    struct bus_greeting g = b->own;
    g.port = b->port;
    random_bytes(g.nonce, sizeof g.nonce);
    return g;
}

/* Bound to the cluster, to the role and to both sides' ids and nonces: a signature is of no use
 * anywhere else, nor to a member that stands between two others. */
static void signed_text(const struct bus *b, bool dialler, const struct bus_greeting *hello,
                        const struct bus_greeting *welcome, struct str *out) {
    str_addz(out, dialler ? "skein bus dialler" : "skein bus listener");
    str_addc(out, 0);
    str_add(out, b->key.public, sizeof b->key.public);
    bus_greeting_write(hello, out);
    bus_greeting_write(welcome, out);
}

void bus_greet_sign(const struct bus *b, bool dialler, const struct bus_greeting *hello,
                    const struct bus_greeting *welcome, u8 signature[64]) {
    struct str text = {0};
    signed_text(b, dialler, hello, welcome, &text);
    identity_sign(&b->identity, str_view(&text), signature);
    str_deinit(&text);
}

bool bus_greet_verify(const struct bus *b, bool dialler, const struct bus_greeting *hello,
                      const struct bus_greeting *welcome, const u8 signature[64]) {
    struct str text = {0};
    signed_text(b, dialler, hello, welcome, &text);
    bool ok =
        identity_verify(dialler ? hello->public : welcome->public, str_view(&text), signature);
    str_deinit(&text);
    return ok;
}

bool bus_greet_is_junior(const struct bus_greeting *a, const struct bus_greeting *b) {
    if (a->moved != b->moved) return a->moved;
    if (a->started != b->started) return a->started > b->started;
    return a->boot > b->boot;
}

void bus_greet_note_twin(struct bus *b, const char *address) {
    if (b->twin_noted) return;
    b->twin_noted = true;
    bus_note_add(b, BUS_TWIN, b->identity.id, address, 0,
                 "another process has this node's key: a copied data folder");
}

void bus_greet_twin(struct bus *b, const struct bus_greeting *other, const char *address) {
    if (bus_greet_is_junior(&b->own, other)) bus_greet_note_twin(b, address);
}
