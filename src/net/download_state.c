#include "net/download_state.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/str.h"

/* Small chunks balance better over connections; large files get larger ones to keep the table
 * small. */
static u32 chunk_for(u64 size_bytes) {
    return size_bytes < (u64)1 << 30   ? 8u << 20
           : size_bytes < (u64)1 << 40 ? 32u << 20
                                       : 512u << 20;
}

static bool set_size(struct download_state *s, u64 size_bytes, u32 chunk_bytes) {
    u64 n = size_bytes / chunk_bytes + (size_bytes % chunk_bytes != 0);
    if (n > DOWNLOAD_CHUNKS_MAX) return false;
    s->size_bytes = size_bytes;
    s->chunk_bytes = chunk_bytes;
    s->n_chunks = (u32)n;
    s->done = xcalloc(n ? n : 1, sizeof *s->done);
    return true;
}

bool download_state_init(struct download_state *s, u64 size_bytes, const char *validator) {
    *s = (struct download_state){0};
    str_copy(s->validator, sizeof s->validator, validator);
    return set_size(s, size_bytes, chunk_for(size_bytes));
}

void download_state_deinit(struct download_state *s) {
    free(s->done);
    *s = (struct download_state){0};
}

u32 download_state_len(const struct download_state *s, u32 i) {
    u64 left = s->size_bytes - (u64)i * s->chunk_bytes;
    return (u32)MIN(left, s->chunk_bytes);
}

u64 download_state_have(const struct download_state *s) {
    u64 sum = 0;
    for (u32 i = 0; i < s->n_chunks; i++) sum += s->done[i];
    return sum;
}

/* The rest of a line "<key> <rest>"; advances behind it. */
static bool take_line(struct view *v, const char *key, struct view *rest) {
    const char *nl = v->n ? memchr(v->p, '\n', v->n) : NULL;
    size_t k = strlen(key);
    if (!nl || !view_starts(*v, key)) return false;
    *rest = (struct view){v->p + k, (size_t)(nl - v->p) - k};
    v->n -= (size_t)(nl + 1 - v->p);
    v->p = nl + 1;
    return true;
}

static bool take_number(struct view *v, const char *key, u64 *out) {
    struct view t;
    if (!take_line(v, key, &t) || t.n == 0 || t.n > 19) return false;
    *out = 0;
    for (size_t i = 0; i < t.n; i++) {
        if (!isdigit((unsigned char)t.p[i])) return false;
        *out = *out * 10 + (u64)(t.p[i] - '0');
    }
    return true;
}

bool download_state_parse(struct download_state *s, const void *data, size_t n) {
    struct view v = {data, n}, rest;
    u64 size, chunk;
    *s = (struct download_state){0};
    if (!take_line(&v, "skein-download 1", &rest) || rest.n) return false;
    if (!take_number(&v, "size ", &size) || !take_number(&v, "chunk ", &chunk)) return false;
    if (!take_line(&v, "validator ", &rest) || rest.n >= sizeof s->validator) return false;
    memcpy(s->validator, rest.p, rest.n);
    if (memchr(s->validator, '\0', rest.n)) return false;
    if (!take_line(&v, "", &rest) || rest.n) return false;
    if (chunk < 1 << 16 || chunk > 1 << 30 || !set_size(s, size, (u32)chunk)) return false;
    struct rd r = rd_of(v.p, v.n);
    bool ok = v.n == (size_t)s->n_chunks * 4;
    for (u32 i = 0; ok && i < s->n_chunks; i++) {
        s->done[i] = rd_u32(&r);
        ok = s->done[i] <= download_state_len(s, i);
    }
    if (!ok) download_state_deinit(s);
    return ok;
}

bool download_state_load(struct download_state *s, const char *path) {
    struct str bytes = {0};
    bool ok = file_read(path, (u64)DOWNLOAD_CHUNKS_MAX * 4 + 1024, &bytes, NULL) &&
              download_state_parse(s, bytes.p, bytes.n);
    if (!ok) *s = (struct download_state){0};
    str_deinit(&bytes);
    return ok;
}

bool download_state_save(const struct download_state *s, const char *path, struct err *e) {
    struct str out = {0};
    str_addf(&out, "skein-download 1\nsize %llu\nchunk %u\nvalidator %s\n\n",
             (unsigned long long)s->size_bytes, s->chunk_bytes, s->validator);
    for (u32 i = 0; i < s->n_chunks; i++) wr_u32(&out, s->done[i]);
    bool ok = file_write(path, out.p, out.n, 0644, e);
    str_deinit(&out);
    return ok;
}
