#include "node/share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/lock.h"
#include "net/download_state.h"
#include "net/http_server.h"
#include "node/store_internal.h"

enum { FILES_MAX = 256, REFRESH_MS = 500, HASH_PIECE = 1 << 20 };
static const char MAGIC[] = "skein-map 1\n";

struct shared {
    char sha256[65],
        path[1024]; /* path: where the bytes are now, whole or in part; "" when unknown */
    char stray[1024]; /* the file, when sha256 is the id of one that no catalogue knows; else "" */
    u64 size_bytes;
    u32 chunk_bytes, n_chunks;
    u8 *flags;                    /* [n_chunks] SHARE_HAS, SHARE_NEEDS */
    u8 (*hash)[SHARE_HASH_BYTES]; /* [n_chunks] */
    bool is_over; /* nothing is needed any more once the hasher has seen what came */
    bool asked;   /* since the hasher looked last */
};

/* lock guards files and what they hold; counterparts are the HTTP thread (maps), the hasher (which
 * alone sets SHARE_HAS, hash and path), whoever fetches (needs) and the HTTP thread again, which
 * learns where a stray file is. Files are never taken away. */
struct share {
    struct http_server *http;
    const struct store *store;
    char token[SHARE_TOKEN_HEX];
    struct lock lock;
    struct shared *files[FILES_MAX];
    u32 n_files;
    u64 sent_bytes;
    int stop[2]; /* a pipe: ends the hasher, wakes it */
    bool has_hasher;
    pthread_t hasher;
};

static u32 get_le32(const u8 *p) {
    return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}
static void put_le(struct str *o, u64 v, u32 n) {
    for (u32 i = 0; i < n; i++) str_addc(o, (char)(v >> (8 * i)));
}

bool share_map_parse(const void *data, size_t n, u64 size_bytes, struct share_map *out) {
    const u8 *p = data;
    const size_t head = sizeof MAGIC - 1 + 16;
    struct download_state s;
    if (n < head || memcmp(p, MAGIC, sizeof MAGIC - 1) != 0) return false;
    p += sizeof MAGIC - 1;
    *out = (struct share_map){.size_bytes = get_le32(p) | (u64)get_le32(p + 4) << 32,
                              .chunk_bytes = get_le32(p + 8),
                              .n_chunks = get_le32(p + 12),
                              .chunks = p + 16};
    if (out->size_bytes != size_bytes || !download_state_init(&s, size_bytes, "")) return false;
    bool ok = s.chunk_bytes == out->chunk_bytes && s.n_chunks == out->n_chunks &&
              n == head + (u64)out->n_chunks * (1 + SHARE_HASH_BYTES);
    download_state_deinit(&s);
    return ok;
}

static bool is_sha256(const char *s, size_t n) {
    if (n != 64) return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789abcdef", s[i])) return false;
    return true;
}

/* With the lock. Made when the catalogue knows such a file; NULL when it does not. */
static struct shared *find(struct share *s, const char *sha256, u64 size_bytes) {
    struct download_state d;
    for (u32 i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i]->sha256, sha256) == 0) return s->files[i];
    if (s->n_files == FILES_MAX || !size_bytes || !download_state_init(&d, size_bytes, ""))
        return NULL;
    struct shared *f = xcalloc(1, sizeof *f);
    str_copy(f->sha256, sizeof f->sha256, sha256);
    f->size_bytes = size_bytes;
    f->chunk_bytes = d.chunk_bytes;
    f->n_chunks = d.n_chunks;
    f->flags = xcalloc(d.n_chunks, 1);
    f->hash = xcalloc(d.n_chunks, SHARE_HASH_BYTES);
    download_state_deinit(&d);
    return s->files[s->n_files++] = f;
}

static u64 size_of(struct share *s, const char *sha256) {
    const struct catalogue *c = &s->store->catalogue;
    for (u32 i = 0; i < c->n; i++)
        if (strcmp(c->v[i].sha256, sha256) == 0) return c->v[i].size_bytes;
    return 0;
}

void share_need(struct share *s, const char *sha256, const u8 *need, u32 n_chunks) {
    lock_take(&s->lock);
    struct shared *f = find(s, sha256, size_of(s, sha256));
    for (u32 i = 0; f && need && i < f->n_chunks; i++) {
        bool wanted = i < n_chunks && need[i];
        f->flags[i] = (u8)((f->flags[i] & ~SHARE_NEEDS) | (wanted ? SHARE_NEEDS : 0));
    }
    if (f) {
        f->asked = true;
        f->is_over = !need;
    }
    lock_give(&s->lock);
}

u64 share_sent_bytes(struct share *s) {
    lock_take(&s->lock);
    u64 n = s->sent_bytes;
    lock_give(&s->lock);
    return n;
}

/* Where the file with that hash is: complete under its name, or the part of a download with what it
 * has of each chunk. Reads the disk. */
static bool look(struct share *s, const struct shared *f, char path[1024],
                 struct download_state *have, bool *whole) {
    const struct catalogue *c = &s->store->catalogue;
    struct store_model m;
    u64 size = 0;
    lock_take(&s->lock);
    str_copy(path, 1024, f->stray);
    lock_give(&s->lock);
    if (*path) return *whole = file_size(path, &size, NULL) && size == f->size_bytes;
    for (u32 i = 0; i < c->n; i++) {
        if (strcmp(c->v[i].sha256, f->sha256) != 0) continue;
        if (!store_resolve(s->store, c->v[i].id, &m, NULL)) continue;
        *whole = m.path[0] != '\0';
        if (*whole) {
            str_copy(path, 1024, m.path);
            return true;
        }
        char state[1100];
        if (!store_path(s->store, path, "", c->v[i].file, STORE_PART, NULL)) continue;
        snprintf(state, sizeof state, "%s.state", path);
        if (!download_state_load(have, state)) continue;
        if (have->size_bytes == f->size_bytes && have->chunk_bytes == f->chunk_bytes) return true;
        download_state_deinit(have);
    }
    return false;
}

static bool hash_chunk(int fd, u64 offset, u64 n, u8 *piece, u8 out[SHARE_HASH_BYTES]) {
    struct sha256 h;
    sha256_init(&h);
    while (n) {
        ssize_t k = pread(fd, piece, MIN(n, (u64)HASH_PIECE), (off_t)offset);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        sha256_add(&h, piece, (size_t)k);
        offset += (u64)k;
        n -= (u64)k;
    }
    sha256_end(&h, n ? NULL : out);
    return n == 0;
}

static bool should_stop(struct share *s, int wait_ms) {
    return poll(&(struct pollfd){s->stop[0], POLLIN, 0}, 1, wait_ms) > 0;
}

/* Brings one file's flags up to date with the disk: new chunks are hashed, vanished ones go. */
static void refresh(struct share *s, struct shared *f, u8 *piece) {
    struct download_state have = {0};
    char path[1024];
    lock_take(&s->lock);
    bool is_over = f->is_over;
    lock_give(&s->lock);
    bool whole = false, there = look(s, f, path, &have, &whole);
    int fd = there ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    lock_take(&s->lock);
    str_copy(f->path, sizeof f->path, fd >= 0 ? path : "");
    lock_give(&s->lock);
    for (u32 i = 0; i < f->n_chunks && !should_stop(s, 0); i++) {
        u64 offset = (u64)i * f->chunk_bytes, n = MIN(f->size_bytes - offset, f->chunk_bytes);
        u8 hash[SHARE_HASH_BYTES];
        bool is_here = fd >= 0 && (whole || have.done[i] == n);
        lock_take(&s->lock);
        bool was_here = f->flags[i] & SHARE_HAS;
        lock_give(&s->lock);
        if (is_here == was_here) continue; /* a part that was renamed keeps its bytes */
        if (is_here) is_here = hash_chunk(fd, offset, n, piece, hash);
        lock_take(&s->lock);
        if (is_here) memcpy(f->hash[i], hash, sizeof hash);
        f->flags[i] = (u8)((f->flags[i] & ~SHARE_HAS) | (is_here ? SHARE_HAS : 0));
        lock_give(&s->lock);
    }
    lock_take(&s->lock);
    for (u32 i = 0; is_over && f->is_over && i < f->n_chunks; i++) f->flags[i] &= SHARE_HAS;
    lock_give(&s->lock);
    if (fd >= 0) close(fd);
    download_state_deinit(&have);
}

static void *hasher_main(void *ctx) {
    struct share *s = ctx;
    u8 *piece = xcalloc(1, HASH_PIECE);
    while (!should_stop(s, REFRESH_MS)) {
        for (u32 i = 0;; i++) {
            lock_take(&s->lock);
            struct shared *f = i < s->n_files ? s->files[i] : NULL;
            bool asked = f && f->asked;
            if (f) f->asked = false;
            lock_give(&s->lock);
            if (!f) break;
            if (asked) refresh(s, f, piece);
        }
    }
    free(piece);
    return NULL;
}

static void refuse(struct http_answer *a, int status, const char *text) {
    (void)!http_answer_whole(a, status, "text/plain", text, strlen(text));
}

static void answer_map(struct share *s, const char *sha256, struct http_answer *a) {
    struct str o = {0};
    lock_take(&s->lock);
    struct shared *f = find(s, sha256, size_of(s, sha256));
    if (f) {
        f->asked = true;
        str_addz(&o, MAGIC);
        put_le(&o, f->size_bytes, 8);
        put_le(&o, f->chunk_bytes, 4);
        put_le(&o, f->n_chunks, 4);
        for (u32 i = 0; i < f->n_chunks; i++) {
            static const u8 NONE[SHARE_HASH_BYTES];
            str_addc(&o, (char)f->flags[i]);
            str_add(&o, f->flags[i] & SHARE_HAS ? f->hash[i] : NONE, SHARE_HASH_BYTES);
        }
    }
    lock_give(&s->lock);
    if (f)
        (void)!http_answer_whole(a, 200, "application/octet-stream", o.p, o.n);
    else
        refuse(a, 404, "no such file in the catalogue of this node\n");
    str_deinit(&o);
}

/* Of a file by its name; from then on it is shared under its id. */
static void answer_named(struct share *s, const char *hex, struct http_answer *a) {
    struct str o = {0};
    struct store_named named;
    char name[STORE_NAMED_MAX + 1] = "", path[1024];
    size_t n = strlen(hex) / 2;
    struct shared *f = NULL;
    if (n <= STORE_NAMED_MAX && strlen(hex) == 2 * n && hex_decode(hex, name, n) &&
        store_named_here(s->store, name, path, &named)) {
        lock_take(&s->lock);
        f = find(s, named.id, named.size_bytes);
        if (f) str_copy(f->stray, sizeof f->stray, path);
        if (f) f->asked = true;
        lock_give(&s->lock);
    }
    if (f) {
        store_named_text(&named, &o);
        (void)!http_answer_whole(a, 200, "text/plain", o.p, o.n);
    } else {
        refuse(a, 404, "no such file on this node\n");
    }
    str_deinit(&o);
}

/* Where bytes first..last of the file are, if all their chunks are shared. */
static bool locate(struct share *s, const char *sha256, u64 first, u64 last, char path[1024],
                   u64 *size) {
    bool ok = false;
    lock_take(&s->lock);
    struct shared *f = find(s, sha256, 0);
    if (f && first <= last && last < f->size_bytes && f->path[0]) {
        ok = true;
        for (u64 i = first / f->chunk_bytes; i <= last / f->chunk_bytes; i++)
            ok = ok && (f->flags[i] & SHARE_HAS);
        str_copy(path, 1024, f->path);
        *size = f->size_bytes;
        if (ok) s->sent_bytes += last - first + 1;
    }
    lock_give(&s->lock);
    return ok;
}

static void answer_bytes(struct share *s, const struct http_req *r, const char *sha256,
                         struct http_answer *a) {
    const char *range = http_req_header(r, "Range");
    unsigned long long first = 0, last = 0;
    char path[1024], text[96];
    u64 size = 0;
    int end = 0;
    if (!range || sscanf(range, "bytes=%19llu-%19llu%n", &first, &last, &end) != 2 || range[end]) {
        refuse(a, 400, "ask for a range: bytes=A-B\n");
        return;
    }
    if (!locate(s, sha256, first, last, path, &size)) {
        refuse(a, 416, "these bytes are not here\n");
        return;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { /* renamed or deleted this moment */
        refuse(a, 503, "come again\n");
        return;
    }
    snprintf(text, sizeof text, "bytes %llu-%llu/%llu", first, last, (unsigned long long)size);
    http_answer_header(a, "Content-Range", text);
    (void)!http_answer_file(a, 206, "application/octet-stream", fd, first, last - first + 1);
}

static void handle(const struct http_req *r, struct http_answer *a, void *ctx) {
    struct share *s = ctx;
    const char *auth = http_req_header(r, "Authorization");
    char sha256[65];
    size_t n = strlen(r->path);
    bool known = auth && strncmp(auth, "Bearer ", 7) == 0 && strlen(auth + 7) == 64 &&
                 hash_equal(auth + 7, s->token, 64);
    bool is_map = n == 1 + 64 + 4 && strcmp(r->path + 65, "/map") == 0;
    if (!known) {
        refuse(a, 401, "this port is for the nodes of a skein cluster\n");
    } else if (strcmp(r->method, "GET") == 0 && strncmp(r->path, "/named/", 7) == 0) {
        answer_named(s, r->path + 7, a);
    } else if (strcmp(r->method, "GET") != 0 || (!is_map && n != 1 + 64) ||
               !is_sha256(r->path + 1, 64)) {
        refuse(a, 404, "there is no such path\n");
    } else {
        memcpy(sha256, r->path + 1, 64);
        sha256[64] = '\0';
        if (is_map)
            answer_map(s, sha256, a);
        else
            answer_bytes(s, r, sha256, a);
    }
}

struct share *share_start(const struct share_cfg *cfg, struct err *e) {
    struct share *s = xcalloc(1, sizeof *s);
    struct http_server_cfg http = {.host = cfg->host && *cfg->host ? cfg->host : "*",
                                   .port = cfg->port,
                                   .handler = handle,
                                   .ctx = s,
                                   .body_max_bytes = 1024,
                                   .n_connections_max = 64};
    s->stop[0] = s->stop[1] = -1;
    s->store = cfg->store;
    str_copy(s->token, sizeof s->token, cfg->token);
    lock_init(&s->lock);
    if (pipe(s->stop) != 0) {
        err_errno(e, ERR_IO, "pipe");
    } else if ((s->http = http_server_start(&http, e))) {
        s->has_hasher = pthread_create(&s->hasher, NULL, hasher_main, s) == 0;
        if (s->has_hasher) return s;
        err_set(e, ERR_IO, "can't start the thread that hashes shared files");
    }
    share_stop(s);
    return NULL;
}

void share_stop(struct share *s) {
    if (!s) return;
    if (s->http) http_server_stop(s->http);
    if (s->has_hasher) {
        ssize_t k = write(s->stop[1], "", 1);
        (void)k;
        pthread_join(s->hasher, NULL);
    }
    for (u32 i = 0; i < s->n_files; i++) {
        free(s->files[i]->flags);
        free(s->files[i]->hash);
        free(s->files[i]);
    }
    for (int i = 0; i < 2; i++)
        if (s->stop[i] >= 0) close(s->stop[i]);
    lock_deinit(&s->lock);
    free(s);
}

u16 share_port(const struct share *s) {
    return http_server_port(s->http);
}
