#include "net/http_download.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "net/download_state.h"
#include "net/http_curl.h"

enum {
    CONNECTIONS_MAX = 16,
    RETRIES_MAX = 3,
    RESTARTS_MAX = 2, /* of the whole file, because the server's copy changed */
    RETRY_PAUSE_MS = 500,
    PROGRESS_MS = 100,
    CHECKPOINT_MS = 2000,
    RATE_SAMPLES = 32, /* of PROGRESS_MS each: the rate is the mean over about 3 s */
};

struct slot {
    CURL *curl; /* NULL: free */
    struct download *d;
    struct curl_slist *headers;
    bool checked; /* the response's status and headers were looked at */
    u32 chunk;
    u64 first, off; /* in the file: where this request began, where the next byte goes */
    char range_total[32];
    char etag[DOWNLOAD_VALIDATOR_CAP], modified[DOWNLOAD_VALIDATOR_CAP];
    u64 range_first;
    char text[CURL_ERROR_SIZE];
};

enum verdict { GOING, RESTART, FAILED };

struct download {
    const struct http_download *cfg;
    CURLM *multi;
    int fd;
    char state_path[4096];
    struct download_state state;
    bool known;      /* size and validator of the server's file are in `state` */
    bool no_ranges;  /* one response carries everything, from the beginning */
    u64 stream_done; /* no_ranges: bytes so far */
    struct slot slots[CONNECTIONS_MAX];
    u32 n_retries, n_restarts;
    u64 retry_at_ms;
    enum verdict verdict;
    struct err err;
    u64 next_progress_ms, next_checkpoint_ms;
    struct {
        u64 ms, bytes;
    } samples[RATE_SAMPLES];
    u32 n_samples;
};

static void state_path_of(const char *part_path, char out[4096]) {
    snprintf(out, 4096, "%s.state", part_path);
}

static u64 done_bytes(const struct download *d) {
    return d->no_ranges ? d->stream_done : download_state_have(&d->state);
}

static bool fail(struct download *d, enum err_code code, const char *text) {
    if (d->verdict == FAILED) return false;
    d->verdict = FAILED;
    return err_set(&d->err, code, "%s", text);
}

static void copy_header(char *out, size_t cap, const char *value, size_t n) {
    while (n && (*value == ' ' || *value == '\t')) value++, n--;
    while (n && strchr("\r\n \t", value[n - 1])) n--;
    out[0] = '\0';
    if (n >= cap) return;
    memcpy(out, value, n);
    out[n] = '\0';
}

static size_t on_header(char *p, size_t one, size_t n, void *ctx) {
    struct slot *s = ctx;
    (void)one;
    char text[DOWNLOAD_VALIDATOR_CAP];
    if (n > 5 && strncmp(p, "HTTP/", 5) == 0) { /* of a redirect before: forget */
        s->etag[0] = s->modified[0] = s->range_total[0] = '\0';
        s->range_first = UINT64_MAX;
    } else if (n > 5 && strncasecmp(p, "ETag:", 5) == 0) {
        copy_header(s->etag, sizeof s->etag, p + 5, n - 5);
    } else if (n > 14 && strncasecmp(p, "Last-Modified:", 14) == 0) {
        copy_header(s->modified, sizeof s->modified, p + 14, n - 14);
    } else if (n > 14 && strncasecmp(p, "Content-Range:", 14) == 0) {
        unsigned long long first, last, total;
        copy_header(text, sizeof text, p + 14, n - 14);
        if (sscanf(text, "bytes %llu-%llu/%llu", &first, &last, &total) == 3) {
            s->range_first = first;
            snprintf(s->range_total, sizeof s->range_total, "%llu", total);
        }
    }
    return n;
}

static bool check_room(struct download *d, u64 needed) {
    struct statvfs v;
    char a[32], b[32], text[256];
    if (fstatvfs(d->fd, &v) != 0 || (u64)v.f_bavail * v.f_frsize >= needed) return true;
    snprintf(text, sizeof text, "not enough room on the disk: %s more are needed, %s are free",
             size_text(needed, a), size_text((u64)v.f_bavail * v.f_frsize, b));
    return fail(d, ERR_IO, text);
}

/* Of the server's whole file; 0 where it does not say. */
static u64 size_of_response(const struct slot *s, long status) {
    curl_off_t length = -1;
    curl_easy_getinfo(s->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    return status == 206 ? strtoull(s->range_total, NULL, 10) : (u64)MAX(length, 0);
}

/* Another size than the caller expects is another file, such as the page of a network that wants a
 * login: no reason to throw away what has come. */
static bool check_size(struct download *d, u64 size) {
    char text[160];
    u64 want = d->cfg->size_bytes;
    if (!want || !size || size == want) return true;
    snprintf(text, sizeof text, "the server's file has %llu bytes, %llu were expected",
             (unsigned long long)size, (unsigned long long)want);
    return fail(d, ERR_FORMAT, text);
}

/* Takes size and validator from the first response of a fresh download. */
static bool learn(struct download *d, struct slot *s, long status) {
    u64 size = size_of_response(s, status);
    if (!check_size(d, size)) return false;
    /* A weak ETag must not be used with If-Range (RFC 9110, 13.1.5). */
    bool strong = s->etag[0] && strncmp(s->etag, "W/", 2) != 0;
    download_state_deinit(&d->state);
    const char *validator = d->cfg->is_hashed ? "" : strong ? s->etag : s->modified;
    if (!download_state_init(&d->state, size, validator)) {
        return fail(d, ERR_LIMIT, "the file is too large");
    }
    d->no_ranges = status != 206;
    d->stream_done = 0;
    d->known = true;
    return check_room(d, size);
}

/* With the first byte, or at the end of an empty response. False ends the transfer. */
static bool check_response(struct download *d, struct slot *s) {
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    s->checked = true;
    if (!d->known) return learn(d, s, status) && (status != 206 || s->range_first == s->off);
    if (d->no_ranges) return status == 200;
    u64 total = strtoull(s->range_total, NULL, 10);
    if (status == 206 && s->range_first == s->off && total == d->state.size_bytes) return true;
    if (d->cfg->want && status == 200)
        return fail(d, ERR_UNSUPPORTED, "the server gives whole files only, no parts of them");
    if (d->cfg->want) return fail(d, ERR_FORMAT, "the server has a file of another size");
    if (!check_size(d, size_of_response(s, status))) return false;
    /* 200: If-Range did not match. Another total: the file changed although nothing told. */
    if (d->verdict == GOING) d->verdict = RESTART;
    return false;
}

static size_t on_body(char *p, size_t one, size_t n, void *ctx) {
    struct slot *s = ctx;
    struct download *d = s->d;
    (void)one;
    if (!s->checked && !check_response(d, s)) return 0;
    u64 end = d->no_ranges
                  ? UINT64_MAX
                  : (u64)s->chunk * d->state.chunk_bytes + download_state_len(&d->state, s->chunk);
    if (n > end - s->off) n = (size_t)(end - s->off); /* more than asked for: cut off */
    for (size_t i = 0; i < n;) {
        ssize_t k = pwrite(d->fd, p + i, n - i, (off_t)(s->off + i));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            if (errno == ENOSPC && !check_room(d, d->state.size_bytes - done_bytes(d))) return 0;
            if (d->verdict != FAILED) {
                d->verdict = FAILED;
                err_errno(&d->err, ERR_IO, "%s: can't write", d->cfg->part_path);
            }
            return 0;
        }
        i += (size_t)k;
    }
    s->off += n;
    if (d->no_ranges)
        d->stream_done += n;
    else
        d->state.done[s->chunk] += (u32)n;
    return n;
}

static void slot_stop(struct slot *s) {
    if (!s->curl) return;
    curl_multi_remove_handle(s->d->multi, s->curl);
    curl_easy_cleanup(s->curl);
    curl_slist_free_all(s->headers);
    s->curl = NULL;
    s->headers = NULL;
}

static void add_header(struct slot *s, const char *name, const char *value) {
    char text[4096];
    snprintf(text, sizeof text, "%s: %s", name, value);
    s->headers = curl_slist_append(s->headers, text);
}

static bool slot_start(struct download *d, struct slot *s, u32 chunk) {
    const struct http_download *c = d->cfg;
    char range[64];
    s->d = d;
    s->chunk = chunk;
    s->first = 0;
    s->checked = false;
    s->range_first = UINT64_MAX;
    s->range_total[0] = '\0';
    s->curl = http_curl_new(c->url, c->connect_timeout_ms, s->text, &d->err);
    if (!s->curl) {
        d->verdict = FAILED;
        return false;
    }
    if (d->no_ranges) {
        s->off = d->stream_done = 0;
    } else {
        u64 first = (u64)chunk * d->state.chunk_bytes;
        /* Nothing is known yet: a first piece of moderate size tells the rest. */
        u64 end = d->known ? first + download_state_len(&d->state, chunk) : 8u << 20;
        s->off = s->first = d->known ? first + d->state.done[chunk] : 0;
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)s->off,
                 (unsigned long long)end - 1);
        curl_easy_setopt(s->curl, CURLOPT_RANGE, range);
        if (d->known && d->state.validator[0] && !c->is_hashed)
            add_header(s, "If-Range", d->state.validator);
    }
    if (c->bearer) {
        curl_easy_setopt(s->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(s->curl, CURLOPT_XOAUTH2_BEARER, c->bearer);
    }
    u32 idle_ms = c->idle_timeout_ms ? c->idle_timeout_ms : 30000;
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(s->curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(s->curl, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(s->curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(s->curl, CURLOPT_LOW_SPEED_TIME, (long)MAX(idle_ms / 1000, 1));
    curl_easy_setopt(s->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(s->curl, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->curl, CURLOPT_PRIVATE, s);
    return curl_multi_add_handle(d->multi, s->curl) == CURLM_OK;
}

static bool is_running(const struct download *d, u32 chunk) {
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        if (d->slots[i].curl && d->slots[i].chunk == chunk) return true;
    }
    return false;
}

/* Chunk i is there, or nobody asked for it. */
static bool is_settled(const struct download *d, u32 i) {
    const struct http_download *c = d->cfg;
    return (c->want && (i >= c->n_want || !c->want[i])) ||
           d->state.done[i] == download_state_len(&d->state, i);
}

/* Gives free connections the next missing chunks. */
static void start_slots(struct download *d) {
    if (clock_ms() < d->retry_at_ms) return;
    u32 n = d->cfg->n_connections ? MIN(d->cfg->n_connections, (u32)CONNECTIONS_MAX) : 4;
    if (!d->known || d->no_ranges) n = 1;
    u32 chunk = 0;
    for (u32 i = 0; i < n && d->verdict == GOING; i++) {
        if (d->slots[i].curl) continue;
        while (d->known && !d->no_ranges && chunk < d->state.n_chunks &&
               (is_settled(d, chunk) || is_running(d, chunk))) {
            chunk++;
        }
        if (d->known && !d->no_ranges && chunk == d->state.n_chunks) return;
        if (!slot_start(d, &d->slots[i], chunk)) return;
        chunk++;
    }
}

static void retry_or_fail(struct download *d, CURLcode code, const struct slot *s) {
    if (d->verdict != GOING) return;
    if (s->off > s->first && !d->no_ranges) d->n_retries = 0; /* it gets on, if slowly */
    if (++d->n_retries > RETRIES_MAX) {
        d->verdict = FAILED;
        http_curl_fail(code, d->cfg->url, s->text, &d->err);
        return;
    }
    log_debug("download", "retrying reason=\"%s\"", s->text);
    d->retry_at_ms = clock_ms() + RETRY_PAUSE_MS * d->n_retries;
}

static void refused(struct download *d, CURLcode code, long status, const struct slot *s) {
    char host[280], text[400];
    http_curl_host(d->cfg->url, host, sizeof host);
    snprintf(text, sizeof text, "%s answers with status %ld", host, status);
    if (status == 416) { /* the range lies outside: the file became shorter, or is empty */
        if (d->known && !d->cfg->size_bytes)
            d->verdict = RESTART;
        else
            fail(d, ERR_FORMAT,
                 d->known ? "the server's file is shorter than expected"
                          : "the server's file is empty");
    } else if (status == 404 || status == 410) {
        fail(d, ERR_NOT_FOUND, text);
    } else if ((status == 401 || status == 403) && !d->known) {
        fail(d, ERR_AUTH, text); /* once it worked, 403 is a signed URL that expired: ask anew */
    } else {
        retry_or_fail(d, code, s);
    }
}

static void finished(struct download *d, struct slot *s, CURLcode code) {
    long status = 0;
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && !s->checked) check_response(d, s);
    if (code == CURLE_HTTP_RETURNED_ERROR) {
        refused(d, code, status, s);
    } else if (code == CURLE_WRITE_ERROR && d->verdict != GOING) {
        /* on_body said why */
    } else if (code == CURLE_WRITE_ERROR && s->checked && !d->no_ranges &&
               d->state.done[s->chunk] == download_state_len(&d->state, s->chunk)) {
        /* sent more than asked for, which was cut off: the chunk is there */
    } else if (code != CURLE_OK || (s->off == s->first && !d->no_ranges)) {
        retry_or_fail(d, code, s);
    } else {
        d->n_retries = 0;
    }
    slot_stop(s);
}

/* Everything again from the beginning: the server's file is another one now. */
static void restart(struct download *d) {
    for (int i = 0; i < CONNECTIONS_MAX; i++) slot_stop(&d->slots[i]);
    if (++d->n_restarts > RESTARTS_MAX) {
        fail(d, ERR_NET, "the file keeps changing on the server");
        return;
    }
    log_info("download", "starting over reason=\"the file changed on the server\" url=\"%s\"",
             d->cfg->url);
    download_state_deinit(&d->state);
    d->known = d->no_ranges = false;
    d->verdict = GOING;
    if (ftruncate(d->fd, 0) != 0) fail(d, ERR_IO, "can't truncate the part file");
    unlink(d->state_path);
}

/* A state counts only with a part file that reaches as far as it says. */
static bool load_state(struct download_state *s, const char *part_path, const char *state_path) {
    u64 have, reach = 0;
    if (!file_size(part_path, &have, NULL) || !download_state_load(s, state_path)) return false;
    for (u32 i = 0; i < s->n_chunks; i++) {
        if (s->done[i]) reach = (u64)i * s->chunk_bytes + s->done[i];
    }
    if (reach <= have) return true;
    download_state_deinit(s);
    return false;
}

static void report(struct download *d, u64 now_ms) {
    if (now_ms < d->next_progress_ms) return;
    d->next_progress_ms = now_ms + PROGRESS_MS;
    u64 done = done_bytes(d);
    u32 i = d->n_samples++ % RATE_SAMPLES,
        oldest = d->n_samples > RATE_SAMPLES ? (i + 1) % RATE_SAMPLES : 0;
    d->samples[i].ms = now_ms;
    d->samples[i].bytes = done;
    u64 span_ms = now_ms - d->samples[oldest].ms, from = d->samples[oldest].bytes;
    double rate = span_ms && done >= from ? (double)(done - from) * 1000 / (double)span_ms : 0;
    if (d->cfg->progress && !d->cfg->progress(d->cfg->ctx, done, d->state.size_bytes, rate)) {
        fail(d, ERR_CANCELLED, "the download was cancelled");
    }
}

static bool checkpoint(struct download *d, struct err *e) {
    if (fsync(d->fd) != 0) return err_errno(e, ERR_IO, "%s: can't sync", d->cfg->part_path);
    if (!d->known || d->no_ranges) return true;
    return download_state_save(&d->state, d->state_path, e);
}

static bool is_complete(const struct download *d) {
    if (!d->known) return false;
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        if (d->slots[i].curl) return false;
    }
    for (u32 i = 0; !d->no_ranges && i < d->state.n_chunks; i++)
        if (!is_settled(d, i)) return false;
    if (!d->no_ranges) return true;
    return d->n_retries == 0 && (!d->state.size_bytes || d->stream_done == d->state.size_bytes);
}

static void loop(struct download *d) {
    while (d->verdict == GOING && !is_complete(d)) {
        int n_running, left;
        start_slots(d);
        curl_multi_perform(d->multi, &n_running);
        for (CURLMsg *m; (m = curl_multi_info_read(d->multi, &left));) {
            struct slot *s = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
            finished(d, s, m->data.result);
        }
        u64 now_ms = clock_ms();
        report(d, now_ms);
        if (d->verdict == GOING && now_ms >= d->next_checkpoint_ms) {
            d->next_checkpoint_ms = now_ms + CHECKPOINT_MS;
            if (!checkpoint(d, &d->err)) d->verdict = FAILED;
        }
        if (d->verdict == RESTART) restart(d);
        if (d->verdict == GOING && !is_complete(d)) {
            curl_multi_poll(d->multi, NULL, 0, PROGRESS_MS / 2, NULL);
        }
    }
}

bool http_download_run(const struct http_download *cfg, struct err *e) {
    struct download *d = calloc(1, sizeof *d);
    if (!d) return err_set(e, ERR_MEMORY, "no memory for a download");
    d->cfg = cfg;
    state_path_of(cfg->part_path, d->state_path);
    d->known = load_state(&d->state, cfg->part_path, d->state_path);
    if (d->known && cfg->size_bytes && d->state.size_bytes != cfg->size_bytes) {
        download_state_deinit(&d->state);
        d->known = false;
    }
    bool fresh = !d->known;
    if (fresh && cfg->want) d->known = download_state_init(&d->state, cfg->size_bytes, "");
    d->fd = open(cfg->part_path, O_RDWR | O_CREAT | O_CLOEXEC | (!fresh ? 0 : O_TRUNC), 0644);
    d->multi = curl_multi_init();
    if (d->fd < 0) {
        d->verdict = FAILED;
        err_errno(&d->err, ERR_IO, "can't write %s", cfg->part_path);
    } else if (!d->multi) {
        fail(d, ERR_INTERNAL, "libcurl did not start");
    } else {
        d->next_checkpoint_ms = clock_ms() + CHECKPOINT_MS;
        loop(d);
    }
    for (int i = 0; i < CONNECTIONS_MAX; i++) slot_stop(&d->slots[i]);
    bool ok = d->verdict == GOING;
    u64 size = d->no_ranges ? d->stream_done : d->state.size_bytes;
    if (ok && cfg->size_bytes && size != cfg->size_bytes)
        ok = fail(d, ERR_FORMAT, "the server sent another size");
    if (ok && ftruncate(d->fd, (off_t)size) != 0) ok = fail(d, ERR_IO, "can't set the file's size");
    if (d->fd >= 0) ok = checkpoint(d, ok ? &d->err : NULL) && ok;
    if (ok) {
        d->next_progress_ms = 0;
        report(d, clock_ms());
        ok = d->verdict == GOING;
    }
    if (!ok && e) *e = d->err;
    if (d->fd >= 0) close(d->fd);
    if (d->multi) curl_multi_cleanup(d->multi);
    download_state_deinit(&d->state);
    free(d);
    return ok;
}

u64 http_download_have(const char *part_path) {
    char path[4096];
    struct download_state s;
    state_path_of(part_path, path);
    if (!load_state(&s, part_path, path)) return 0;
    u64 have = download_state_have(&s);
    download_state_deinit(&s);
    return have;
}

void http_download_forget(const char *part_path) {
    char path[4096];
    state_path_of(part_path, path);
    unlink(path);
    unlink(part_path);
}
