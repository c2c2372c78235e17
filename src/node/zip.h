/* zip.h - takes one member out of a zip archive (a Python wheel) that lies in memory.
 *
 * Just that: stored and deflated members, no encryption, no ZIP64, no split archives; each of these
 * is refused by name. Every offset and size is checked against the bytes that are there, the
 * unpacked size against what the directory says, and the CRC at the end. Pure; any thread. Source:
 * PKWARE APPNOTE.TXT 6.3, sections 4.3 and 4.4. */
#pragma once

#include "base/err.h"

struct zip_member {
    u64 data_off, packed_bytes, size_bytes;
    u32 crc32;
    u32 method; /* 0 stored, 8 deflated */
};

/* ERR_FORMAT for what is no sound archive, ERR_NOT_FOUND when it has no such member,
 * ERR_UNSUPPORTED as above. */
bool zip_find(const void *zip, size_t zip_bytes, const char *name, struct zip_member *out,
              struct err *e);

/* Gets the member's bytes in pieces, in order; false (with *e set by it) stops. */
typedef bool zip_sink(void *ctx, const void *p, size_t n, struct err *e);

/* True when exactly size_bytes came out and the CRC is right. zip must be what zip_find was given.
 */
bool zip_read(const void *zip, size_t zip_bytes, const struct zip_member *m, zip_sink *sink,
              void *ctx, struct err *e);
