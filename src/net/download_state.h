/* download_state.h - what is remembered of a download beside its part file: size, validator, and
 * how many bytes of each chunk are surely on disk.
 *
 * Text of four lines ("skein-download 1", "size N", "chunk N", "validator TEXT"), an empty line,
 * then one little-endian u32 a chunk. The file is replaced as a whole after the data was synced, so
 * what it says is true after any crash. One thread owns a struct. */
#pragma once

#include "base/err.h"

enum { DOWNLOAD_VALIDATOR_CAP = 256, DOWNLOAD_CHUNKS_MAX = 1 << 20 };

struct download_state {
    u64 size_bytes;
    u32 chunk_bytes;
    u32 n_chunks;
    u32 *done; /* [n_chunks] bytes from each chunk's start that are written */
    /* A strong ETag, or a date of Last-Modified; "" when the server gave neither. */
    char validator[DOWNLOAD_VALIDATOR_CAP];
};

/* Sizes the table for a file; everything missing. False when it would need too many chunks. */
bool download_state_init(struct download_state *s, u64 size_bytes, const char *validator);
void download_state_deinit(struct download_state *s);
/* False, and *s empty, for anything that is not a well-formed state. */
bool download_state_parse(struct download_state *s, const void *data, size_t n);
bool download_state_load(struct download_state *s, const char *path);
bool download_state_save(const struct download_state *s, const char *path, struct err *e);
u64 download_state_have(const struct download_state *s);
/* Bytes of chunk i: all alike but the last. */
u32 download_state_len(const struct download_state *s, u32 i);
