/* share.h - this machine's model files for the other nodes: a small HTTP server that they alone may
 * use.
 *
 * Files go by their SHA-256 (the catalogue's), so a name never means two things:
 *
 *   GET /SHA256/map     what is here and what is wanted: share_map's bytes
 *   GET /named/HEX      for a node whose catalogue does not know the file, by the bytes of its
 *                       name: id and size (store_named.c). The id then stands for the SHA-256
 *   GET /SHA256         the bytes of a chunk or more, by "Range: bytes=A-B"; only whole chunks that
 *                       the map shows
 *
 * A chunk (download_state.h's, 8 MiB and more) is shown once its hash is known, which a thread of
 * the share's own computes from the disk; receivers check it. A file that is still being fetched
 * is shared as far as it is there. Requests need the token that the nodes tell each other over the
 * bus.
 *
 * Functions are for any thread. */
#pragma once

#include "base/err.h"
#include "node/store.h"

enum { SHARE_TOKEN_HEX = 65, SHARE_HASH_BYTES = 32 };

struct share;
struct share_cfg {
    const char *host;          /* as http_server's; NULL: every address */
    u16 port;                  /* 0: any free one */
    const char *token;         /* 64 hex digits */
    const struct store *store; /* borrowed, must outlive the share */
};
struct share *share_start(const struct share_cfg *cfg, struct err *e);
void share_stop(struct share *s);
u16 share_port(const struct share *s);

/* This node is about to fetch chunks of a file: need[n_chunks], not 0 for those it wants. The map
 * tells it, so that of several nodes one asks the origin. NULL: not any more. */
void share_need(struct share *s, const char *sha256, const u8 *need, u32 n_chunks);
/* How many bytes others have got from here. */
u64 share_sent_bytes(struct share *s);

/* A map: "skein-map 1\n", then little-endian u64 size, u32 chunk bytes, u32 number of chunks, then
 * a chunk each: u8 flags (SHARE_HAS, SHARE_NEEDS) and 32 bytes hash (zero unless SHARE_HAS). */
enum { SHARE_HAS = 1, SHARE_NEEDS = 2 };
struct share_map {
    u64 size_bytes;
    u32 chunk_bytes, n_chunks;
    const u8 *chunks; /* [n_chunks][1 + SHARE_HASH_BYTES], within the bytes that were parsed */
};
/* False unless it is a map, whole, of a file of size_bytes. Borrows data. */
bool share_map_parse(const void *data, size_t n, u64 size_bytes, struct share_map *out);
static inline u8 share_map_flags(const struct share_map *m, u32 i) {
    return m->chunks[(u64)i * (1 + SHARE_HASH_BYTES)];
}
static inline const u8 *share_map_hash(const struct share_map *m, u32 i) {
    return m->chunks + (u64)i * (1 + SHARE_HASH_BYTES) + 1;
}
