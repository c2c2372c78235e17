#include "node/zip.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/arena.h"
#include "base/buf.h"

enum {
    END_SIG = 0x06054b50,     /* end of central directory: 22 bytes and a comment */
    CENTRAL_SIG = 0x02014b50, /* one a member: 46 bytes, name, extra, comment     */
    LOCAL_SIG = 0x04034b50,   /* before each member's data: 30 bytes, name, extra */
    END_BYTES = 22,
    COMMENT_MAX = 65535,
    PIECE_BYTES = 256 << 10,
};

/* The directory's place, from the end record: the last one whose comment reaches exactly to the
 * end. */
static bool find_directory(const u8 *p, size_t n, u64 *off, u32 *n_members, struct err *e) {
    size_t lowest = n > END_BYTES + COMMENT_MAX ? n - END_BYTES - COMMENT_MAX : 0;
    for (size_t at = n < END_BYTES ? 0 : n - END_BYTES + 1; at-- > lowest;) {
        struct rd r = rd_of(p + at, n - at);
        if (rd_u32(&r) != END_SIG) continue;
        u32 disk = rd_u16(&r), directory_disk = rd_u16(&r);
        rd_u16(&r); /* members on this disk */
        *n_members = rd_u16(&r);
        u32 size = rd_u32(&r);
        *off = rd_u32(&r);
        if (rd_u16(&r) != n - at - END_BYTES) continue;
        if (*n_members == 0xFFFF || *off == 0xFFFFFFFF || size == 0xFFFFFFFF)
            return err_set(e, ERR_UNSUPPORTED, "zip: ZIP64 archives are not read");
        if (disk || directory_disk)
            return err_set(e, ERR_UNSUPPORTED, "zip: split archives are not read");
        if (*off + size > at)
            return err_set(e, ERR_FORMAT, "zip: the directory reaches beyond the file");
        return true;
    }
    return err_set(e, ERR_FORMAT, "zip: no end record in %zu bytes: not a zip file, or cut off", n);
}

/* Where the data of the member whose local header lies at `at` begins. */
static bool locate_data(const u8 *p, size_t n, u64 at, struct zip_member *m, struct err *e) {
    if (at > n) return err_set(e, ERR_FORMAT, "zip: a member lies beyond the file");
    struct rd r = rd_of(p + at, n - at);
    u32 sig = rd_u32(&r);
    rd_bytes(&r, 22); /* repeats the directory */
    u32 name = rd_u16(&r), extra = rd_u16(&r);
    rd_bytes(&r, name + extra);
    if (r.bad || sig != LOCAL_SIG)
        return err_set(e, ERR_FORMAT, "zip: no member header at byte %llu", (unsigned long long)at);
    m->data_off = at + r.off;
    if (m->packed_bytes > rd_left(&r))
        return err_set(e, ERR_FORMAT, "zip: the member at byte %llu is cut off",
                       (unsigned long long)at);
    return true;
}

bool zip_find(const void *zip, size_t n, const char *name, struct zip_member *out, struct err *e) {
    u64 off = 0;
    u32 n_members = 0;
    if (!find_directory(zip, n, &off, &n_members, e)) return false;
    struct rd r = rd_of((const u8 *)zip + off, n - off);
    for (u32 i = 0; i < n_members; i++) {
        u32 sig = rd_u32(&r);
        rd_u32(&r); /* versions */
        u32 flags = rd_u16(&r);
        *out = (struct zip_member){.method = rd_u16(&r)};
        rd_u32(&r); /* time and date */
        out->crc32 = rd_u32(&r);
        out->packed_bytes = rd_u32(&r);
        out->size_bytes = rd_u32(&r);
        u32 n_name = rd_u16(&r), n_extra = rd_u16(&r), n_comment = rd_u16(&r);
        rd_bytes(&r, 8); /* disk, attributes */
        u64 local = rd_u32(&r);
        const char *s = rd_bytes(&r, n_name);
        rd_bytes(&r, n_extra + n_comment);
        if (r.bad || sig != CENTRAL_SIG)
            return err_set(e, ERR_FORMAT, "zip: directory entry %u is broken", i);
        if (!view_is((struct view){s, n_name}, name)) continue;
        if (flags & 1) return err_set(e, ERR_UNSUPPORTED, "zip: %s is encrypted", name);
        if (out->method != 0 && out->method != 8)
            return err_set(e, ERR_UNSUPPORTED, "zip: %s is packed by method %u", name, out->method);
        return locate_data(zip, n, local, out, e);
    }
    return err_set(e, ERR_NOT_FOUND, "zip: no member %s", name);
}

struct unpack {
    const struct zip_member *m;
    u64 n_out;
    u32 crc;
    zip_sink *sink;
    void *ctx;
};

static bool give(struct unpack *u, const void *p, size_t n, struct err *e) {
    if (n > u->m->size_bytes - u->n_out)
        return err_set(e, ERR_FORMAT, "zip: a member is larger than it says");
    u->n_out += n;
    u->crc = (u32)crc32(u->crc, p, (uInt)n);
    return u->sink(u->ctx, p, n, e);
}

static bool copy(struct unpack *u, const u8 *p, struct err *e) {
    for (u64 left = u->m->packed_bytes; left;) {
        size_t n = (size_t)MIN(left, (u64)PIECE_BYTES);
        if (!give(u, p, n, e)) return false;
        p += n;
        left -= n;
    }
    return true;
}

static bool inflate_all(struct unpack *u, const u8 *p, struct err *e) {
    z_stream z = {0};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK)
        return err_set(e, ERR_MEMORY, "zip: zlib has no memory");
    u8 *piece = xcalloc(1, PIECE_BYTES);
    int rc = Z_OK;
    bool ok = true;
    z.next_in = (Bytef *)p;
    z.avail_in = (uInt)u->m->packed_bytes; /* under 4 GiB: it came from a u32 */
    while (ok && rc == Z_OK) {
        z.next_out = piece;
        z.avail_out = PIECE_BYTES;
        rc = inflate(&z, Z_NO_FLUSH);
        size_t n = PIECE_BYTES - z.avail_out;
        if (rc != Z_OK && rc != Z_STREAM_END)
            ok = err_set(e, ERR_FORMAT, "zip: broken deflate stream after %llu bytes",
                         (unsigned long long)u->n_out);
        else if (n)
            ok = give(u, piece, n, e);
    }
    free(piece);
    inflateEnd(&z);
    return ok;
}

bool zip_read(const void *zip, size_t n, const struct zip_member *m, zip_sink *sink, void *ctx,
              struct err *e) {
    ASSERT(m->data_off <= n && m->packed_bytes <= n - m->data_off);
    struct unpack u = {.m = m, .sink = sink, .ctx = ctx};
    const u8 *p = (const u8 *)zip + m->data_off;
    if (!(m->method == 0 ? copy(&u, p, e) : inflate_all(&u, p, e))) return false;
    if (u.n_out != m->size_bytes)
        return err_set(e, ERR_FORMAT, "zip: a member has %llu bytes, not %llu",
                       (unsigned long long)u.n_out, (unsigned long long)m->size_bytes);
    if (u.crc != m->crc32) return err_set(e, ERR_FORMAT, "zip: a member's CRC is wrong");
    return true;
}
