/* http_download.h - one large file over HTTP into a part file, in ranges, resumable.
 *
 * The bytes go to part_path; part_path with ".state" behind it remembers size, ETag and which
 * chunks are on disk (fsynced before they are marked), so that a download that was killed goes on
 * where it stopped. When the server's file has changed since (other size or ETag; If-Range), it
 * starts over; where the caller knows the size, another one is an error, and what has come stays. A
 * server without ranges is read in one piece from the beginning. Blocks the calling thread; one
 * download a file at a time (the caller holds a lock on it). */
#pragma once

#include "base/err.h"

struct http_download {
    const char *url;
    const char *part_path;
    u64 size_bytes; /* expected; another size offered by the server is an error at once. 0: unknown
                     */
    u32 n_connections;      /* 0: 4 where the server does ranges */
    u32 connect_timeout_ms; /* 0: 5 s */
    u32 idle_timeout_ms;    /* slower than 1 KiB/s for so long fails; 0: 30 s */
    /* Only these chunks (download_state.h's, [n_want] bytes that are not 0); NULL: all. True is
     * returned when they are there, which the file as a whole may not be. Needs size_bytes, and a
     * server that does ranges: else ERR_UNSUPPORTED. */
    const u8 *want;
    u32 n_want;
    /* The caller proves the bytes by their hash: an ETag is neither sent nor remembered, so that
     * one file may come from several servers. */
    bool is_hashed;
    const char *bearer; /* access token for the first host, or NULL */
    /* Called about 10 times a second on the calling thread; total_bytes is 0 while unknown. False
     * cancels: what is there stays for the next attempt. May be NULL. */
    bool (*progress)(void *ctx, u64 done_bytes, u64 total_bytes, double bytes_per_s);
    void *ctx;
};

/* True: part_path holds the whole file, fsynced; the caller checks its hash, renames it and calls
 * http_download_forget. False and *e: ERR_NET (host, reason), ERR_NOT_FOUND (404/410), ERR_AUTH
 * (401/403), ERR_IO (disk full says how much is needed), ERR_FORMAT (size differs), ERR_CANCELLED.
 * Short failures of single ranges are retried (3 times, with a pause) before they count. */
bool http_download_run(const struct http_download *d, struct err *e);
/* Bytes that are on disk already for this part file; 0 when there is none. */
u64 http_download_have(const char *part_path);
/* Removes the state file and, if it is still there, the part file. */
void http_download_forget(const char *part_path);
