#include "net/bus_frame.h"

#include <string.h>

#include "base/buf.h"

static bool take_bytes(struct rd *r, u8 *out, size_t n) {
    const u8 *p = rd_bytes(r, n);
    if (!r->bad) memcpy(out, p, n);
    return !r->bad;
}

static bool parse_greeting(struct bus_greeting *g, struct rd *r) {
    g->boot = rd_u64(r);
    g->started = rd_u64(r);
    g->port = rd_u16(r);
    u8 moved = rd_u8(r);
    g->moved = moved == 1;
    return take_bytes(r, g->public, sizeof g->public) && take_bytes(r, g->nonce, sizeof g->nonce) &&
           g->port && moved <= 1;
}

void bus_greeting_write(const struct bus_greeting *g, struct str *out) {
    wr_u64(out, g->boot);
    wr_u64(out, g->started);
    wr_u16(out, g->port);
    wr_u8(out, g->moved);
    str_add(out, g->public, sizeof g->public);
    str_add(out, g->nonce, sizeof g->nonce);
}

static bool parse_data(struct bus_frame *f, struct rd *r) {
    f->type = rd_u32(r);
    f->id = rd_u32(r);
    f->total = rd_u32(r);
    f->offset = rd_u32(r);
    f->n = rd_left(r);
    f->bytes = rd_bytes(r, f->n);
    if (r->bad || f->n > BUS_FRAGMENT_MAX || f->total > BUS_MESSAGE_MAX) return false;
    if (f->offset > f->total || f->n > f->total - f->offset) return false;
    return f->n > 0 || f->total == 0;
}

bool bus_frame_parse(struct bus_frame *f, const void *data, size_t n) {
    struct rd r = rd_of(data, n);
    *f = (struct bus_frame){0};
    if (rd_u8(&r) != BUS_FRAME_MAGIC) return false;
    f->version = rd_u8(&r);
    f->kind = rd_u8(&r);
    if (r.bad) return false;
    if (f->version != BUS_FRAME_VERSION) {
        f->kind = BUS_FRAME_OTHER_VERSION;
        return true;
    }
    switch (f->kind) {
    case BUS_FRAME_HELLO:
        if (!parse_greeting(&f->greeting, &r)) return false;
        break;
    case BUS_FRAME_WELCOME:
        if (!parse_greeting(&f->greeting, &r)) return false;
        take_bytes(&r, f->signature, sizeof f->signature);
        break;
    case BUS_FRAME_PROOF: take_bytes(&r, f->signature, sizeof f->signature); break;
    case BUS_FRAME_TWIN: f->boot = rd_u64(&r); break;
    case BUS_FRAME_DATA: return parse_data(f, &r);
    case BUS_FRAME_PING:
    case BUS_FRAME_PONG: f->time_us = rd_u64(&r); break;
    case BUS_FRAME_USE:
    case BUS_FRAME_BYE: break;
    default: return false;
    }
    return !r.bad && rd_left(&r) == 0;
}

void bus_frame_write(const struct bus_frame *f, struct str *out) {
    wr_u8(out, BUS_FRAME_MAGIC);
    wr_u8(out, BUS_FRAME_VERSION);
    wr_u8(out, (u8)f->kind);
    switch (f->kind) {
    case BUS_FRAME_HELLO: bus_greeting_write(&f->greeting, out); break;
    case BUS_FRAME_WELCOME:
        bus_greeting_write(&f->greeting, out);
        str_add(out, f->signature, sizeof f->signature);
        break;
    case BUS_FRAME_PROOF: str_add(out, f->signature, sizeof f->signature); break;
    case BUS_FRAME_TWIN: wr_u64(out, f->boot); break;
    case BUS_FRAME_PING:
    case BUS_FRAME_PONG: wr_u64(out, f->time_us); break;
    case BUS_FRAME_DATA:
        wr_u32(out, f->type);
        wr_u32(out, f->id);
        wr_u32(out, f->total);
        wr_u32(out, f->offset);
        str_add(out, f->bytes, f->n);
        break;
    case BUS_FRAME_BYE:
    case BUS_FRAME_USE:
    case BUS_FRAME_OTHER_VERSION: break;
    }
}

int bus_assembly_add(struct bus_assembly *a, const struct bus_frame *f, struct view *out) {
    if (f->offset == 0 && f->n == f->total) { /* a short message may come between fragments */
        *out = (struct view){(const char *)f->bytes, f->n};
        return 1;
    }
    if (f->offset == 0) {
        str_clear(&a->bytes);
        a->active = true;
        a->id = f->id;
        a->type = f->type;
        a->total = f->total;
    } else if (!a->active || f->id != a->id || f->type != a->type || f->total != a->total ||
               f->offset != a->bytes.n) {
        bus_assembly_reset(a);
        return -1;
    }
    str_add(&a->bytes, f->bytes, f->n);
    if (a->bytes.n < a->total) return 0;
    a->active = false;
    *out = str_view(&a->bytes);
    return 1;
}

void bus_assembly_reset(struct bus_assembly *a) {
    str_deinit(&a->bytes);
    a->active = false;
}
