/* store_named.c - files that a node's catalogue does not know: one that was copied into another
 * node's models folder, or that an entry there speaks of, is found by its name.
 *
 * A node that is asked for such a name answers with the file's id and size. The id is a hash
 * of the size and both ends, which costs little and tells one file from another; the chunks
 * between are held against the sender's hashes as those of any file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "net/http_client.h"
#include "node/store_internal.h"

enum { END_BYTES = 1 << 20, PEERS_MAX = 32 };
static const char MAGIC[] = "skein-file 1\n";

static bool add_bytes(struct sha256 *h, int fd, u64 offset, u64 n, u8 *piece) {
    for (u64 done = 0; done < n;) {
        ssize_t k = pread(fd, piece, n - done, (off_t)(offset + done));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        sha256_add(h, piece, (size_t)k);
        done += (u64)k;
    }
    return true;
}

bool store_file_id(const char *path, u64 size_bytes, char id[65]) {
    struct sha256 h;
    u8 digest[32], size[8];
    u64 there = 0, n = MIN(size_bytes, (u64)END_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    u8 *piece = xcalloc(1, END_BYTES);
    for (u32 i = 0; i < 8; i++) size[i] = (u8)(size_bytes >> (8 * i));
    sha256_init(&h);
    sha256_add(&h, MAGIC, sizeof MAGIC - 1);
    sha256_add(&h, size, sizeof size);
    bool ok = fd >= 0 && file_size(path, &there, NULL) && there == size_bytes &&
              add_bytes(&h, fd, 0, n, piece) && add_bytes(&h, fd, size_bytes - n, n, piece);
    sha256_end(&h, digest);
    hex_encode(digest, 32, id);
    free(piece);
    if (fd >= 0) close(fd);
    return ok;
}

bool store_named_here(const struct store *s, const char *name, char path[1024],
                      struct store_named *out) {
    struct store_model m;
    if (!store_resolve_name(s, name, &m, NULL) || !m.path[0]) return false;
    str_copy(path, 1024, m.path);
    return file_size(path, &out->size_bytes, NULL) &&
           out->size_bytes == m.size_bytes && /* not one of several parts */
           store_file_id(path, out->size_bytes, out->id);
}

bool store_named_file(const char *name, char file[192]) {
    size_t n = strlen(name);
    bool ok = n > 0 && n <= STORE_NAMED_MAX && name[0] != '.' && !store_is_path(name);
    for (size_t i = 0; ok && i < n; i++) ok = (u8)name[i] >= ' ' && name[i] != 0x7f;
    snprintf(file, 192, "%s%s", ok ? name : "", ok ? ".gguf" : "");
    return ok;
}

bool store_elsewhere(const char *name, u64 size_bytes, struct store_model *out) {
    *out = (struct store_model){.size_bytes = size_bytes};
    str_copy(out->id, sizeof out->id, name);
    return store_named_file(name, out->file);
}

void store_named_text(const struct store_named *f, struct str *out) {
    str_addf(out, "%s%s %llu\n", MAGIC, f->id, (unsigned long long)f->size_bytes);
}

bool store_named_parse(struct view text, struct store_named *out) {
    const size_t head = sizeof MAGIC - 1;
    size_t i = head + 64;
    *out = (struct store_named){.size_bytes = 0};
    if (text.n <= i || memcmp(text.p, MAGIC, head) != 0 || text.p[i] != ' ') return false;
    for (size_t k = 0; k < 64; k++) {
        char c = text.p[head + k];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        out->id[k] = c;
    }
    for (i++; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        if (out->size_bytes > UINT64_MAX / 100) return false;
        out->size_bytes = out->size_bytes * 10 + (u64)(text.p[i] - '0');
    }
    return out->size_bytes > 0 && i + 1 == text.n && text.p[i] == '\n';
}

bool store_named_ask(const struct store_help *help, const char *name, struct store_named *out) {
    struct store_peer *peers = xcalloc(PEERS_MAX, sizeof *peers);
    u32 n = help->peers ? help->peers(help->ctx, peers, PEERS_MAX) : 0;
    char hex[2 * STORE_NAMED_MAX + 1] = "";
    bool found = false;
    if (strlen(name) <= STORE_NAMED_MAX) hex_encode(name, strlen(name), hex);
    for (u32 i = 0; i < n && !found && *hex; i++) {
        char url[600], auth[100];
        struct http_client_res res = {0};
        snprintf(url, sizeof url, "%s/named/%s", peers[i].url, hex);
        snprintf(auth, sizeof auth, "Authorization: Bearer %s", peers[i].token);
        const char *const headers[] = {auth, NULL};
        struct http_client_req q = {
            .url = url, .headers = headers, .connect_timeout_ms = 1000, .total_timeout_ms = 5000};
        found = http_client_fetch(&q, &res, NULL) && res.status == 200 &&
                store_named_parse(str_view(&res.body), out);
        http_client_res_deinit(&res);
    }
    free(peers);
    return found;
}
