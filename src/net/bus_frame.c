#include "net/bus_frame.h"

#include <string.h>

#include "base/buf.h"

bool bus_node_id_valid(const char *id, size_t n) {
    if (n == 0 || n > BUS_NODE_ID_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        char c = id[i];
        bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-';
        if (!ok) return false;
    }
    return true;
}

static bool parse_hello(struct bus_frame *f, struct rd *r) {
    f->boot = rd_u64(r);
    f->port = rd_u16(r);
    size_t n = rd_left(r);
    const char *id = rd_bytes(r, n);
    if (r->bad || !f->port || !bus_node_id_valid(id, n)) return false;
    memcpy(f->node_id, id, n);
    f->node_id[n] = '\0';
    return true;
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
    if (rd_u8(&r) != BUS_FRAME_MAGIC || rd_u8(&r) != BUS_FRAME_VERSION) return false;
    f->kind = rd_u8(&r);
    switch (f->kind) {
    case BUS_FRAME_HELLO:
    case BUS_FRAME_WELCOME: return parse_hello(f, &r);
    case BUS_FRAME_DATA: return parse_data(f, &r);
    case BUS_FRAME_PING:
    case BUS_FRAME_PONG: f->time_us = rd_u64(&r); break;
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
    case BUS_FRAME_HELLO:
    case BUS_FRAME_WELCOME:
        wr_u64(out, f->boot);
        wr_u16(out, f->port);
        str_addz(out, f->node_id);
        break;
    case BUS_FRAME_PING:
    case BUS_FRAME_PONG: wr_u64(out, f->time_us); break;
    case BUS_FRAME_DATA:
        wr_u32(out, f->type);
        wr_u32(out, f->id);
        wr_u32(out, f->total);
        wr_u32(out, f->offset);
        str_add(out, f->bytes, f->n);
        break;
    case BUS_FRAME_BYE: break;
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
