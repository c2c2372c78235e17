/* wire.h - how a message becomes bytes and back.
 *
 * A message is a plain struct (msg.h) plus a table of its fields. Encoding is the protobuf wire
 * format: each field is a varint key (tag << 3 | type) and a value; lists repeat the key, lists of
 * numbers are packed. So a reader skips tags it does not know, a writer leaves out zeros, and new
 * fields can be added without a new protocol version; a tag's meaning never changes.
 * Pure; decoding allocates in the caller's arena and never more than the input's size times a small
 * constant. Source: protobuf "Encoding" page. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum wire_kind {
    WIRE_U32,  /* u32, enums, bool as u32: varint         */
    WIRE_U64,  /* u64: varint                             */
    WIRE_I32,  /* i32: zigzag varint                      */
    WIRE_I64,  /* i64: zigzag varint                      */
    WIRE_F32,  /* float: 4 bytes                          */
    WIRE_STR,  /* const char *: UTF-8 without NUL; NULL and "" encode the same */
    WIRE_BLOB, /* struct wire_blob                        */
    WIRE_I32S, /* struct wire_i32s                        */
    WIRE_U64S, /* struct wire_u64s                        */
    WIRE_SUB,  /* an embedded struct with its own table   */
    WIRE_LIST, /* struct wire_list of structs             */
};

struct wire_blob {
    const u8 *p;
    u64 n;
};
struct wire_i32s {
    const i32 *v;
    u64 n;
};
struct wire_u64s {
    const u64 *v;
    u64 n;
};
struct wire_list {
    void *v;
    u64 n;
}; /* v points to n structs of the sub-table's size */

struct wire_field {
    u32 tag; /* 1..2^28, unique within the table */
    enum wire_kind kind;
    u32 offset;                   /* in the struct */
    const struct wire_table *sub; /* WIRE_SUB, WIRE_LIST */
};

struct wire_table {
    const char *name;
    u32 size_bytes;
    u32 n_fields;
    const struct wire_field *fields;
};

/* Appends the encoding of *msg. */
void wire_encode(const struct wire_table *t, const void *msg, struct str *out);
/* Fills *msg (zeroed first). Strings and lists are copied into `a`; strings never hold NULs and are
 * valid UTF-8. ERR_FORMAT names message and field. Nesting is limited by the tables themselves. */
bool wire_decode(const struct wire_table *t, const void *data, size_t n, struct arena *a, void *msg,
                 struct err *e);
