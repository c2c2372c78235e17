#include "base/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "base/str.h"
#include "net/download_state.h"
#include "net/http_download.h"
#include "net/http_server.h"

enum { FILE_BYTES = (20 << 20) + 12345 };

static struct {
    char *bytes;
    size_t n;
    const char *etag;
    bool ignore_range, no_etag, send_length;
    int fail_first; /* so many requests are cut off in the middle */
    int status;     /* answered instead; 0: none */
    u32 pause_ms;   /* between pieces of 256 KiB */
    atomic_ullong n_sent;
    atomic_int n_requests, n_open;
} F;

struct job {
    struct http_answer *a;
    size_t off, end;
    bool cut;
};

static void *send_file(void *ctx) {
    struct job *j = ctx;
    while (j->off < j->end) {
        size_t n = MIN(j->end - j->off, (size_t)(256 << 10));
        if (!http_answer_add(j->a, F.bytes + j->off, n)) break;
        j->off += n;
        atomic_fetch_add(&F.n_sent, n);
        if (F.pause_ms) clock_sleep_ms(F.pause_ms);
        if (j->cut) break;
    }
    if (j->cut)
        http_answer_abort(j->a);
    else
        http_answer_end(j->a);
    free(j);
    atomic_fetch_sub(&F.n_open, 1);
    return NULL;
}

static void handler(const struct http_req *r, struct http_answer *a, void *ctx) {
    (void)ctx;
    int i = atomic_fetch_add(&F.n_requests, 1);
    if (F.status) {
        assert_true(http_answer_whole(a, F.status, "text/plain", "no", 2));
        return;
    }
    const char *range = http_req_header(r, "Range"), *if_range = http_req_header(r, "If-Range");
    struct job *j = calloc(1, sizeof *j);
    *j = (struct job){.a = a, .end = F.n, .cut = i < F.fail_first};
    size_t last;
    bool partial = range && !F.ignore_range && (!if_range || strcmp(if_range, F.etag) == 0) &&
                   sscanf(range, "bytes=%zu-%zu", &j->off, &last) == 2;
    if (partial) {
        char text[96];
        j->end = MIN(last + 1, F.n);
        snprintf(text, sizeof text, "bytes %zu-%zu/%zu", j->off, j->end - 1, F.n);
        http_answer_header(a, "Content-Range", text);
    }
    if (!F.no_etag) http_answer_header(a, "ETag", F.etag);
    if (F.send_length && !partial) {
        assert_true(http_answer_whole(a, 200, "application/octet-stream", F.bytes, F.n));
        free(j);
        return;
    }
    http_answer_start(a, partial ? 206 : 200, "application/octet-stream");
    pthread_t t;
    atomic_fetch_add(&F.n_open, 1);
    assert_int_equal(pthread_create(&t, NULL, send_file, j), 0);
    pthread_detach(t);
}

static void fill(size_t n, u64 seed) {
    free(F.bytes);
    F.bytes = malloc(n);
    F.n = n;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        u64 v = random_at(seed, i);
        memcpy(F.bytes + i, &v, 8);
    }
}

static struct http_server *S;
static char dir[64], part[128], address[128];

static void start_server(void) {
    struct http_server_cfg cfg = {.handler = handler, .buffer_max_bytes = 64 << 20};
    S = http_server_start(&cfg, NULL);
    assert_non_null(S);
    snprintf(address, sizeof address, "%s/file", http_server_url(S));
}

static int setup(void **state) {
    (void)state;
    memset(&F, 0, sizeof F);
    F.etag = "\"one\"";
    fill(FILE_BYTES, 1);
    str_copy(dir, sizeof dir, "/tmp/skein-download-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(part, sizeof part, "%s/file.part", dir);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (S) http_server_stop(S);
    S = NULL;
    for (int i = 0; i < 500 && atomic_load(&F.n_open); i++) clock_sleep_ms(10);
    http_download_forget(part);
    rmdir(dir);
    free(F.bytes);
    F.bytes = NULL;
    return 0;
}

static void assert_same_file(void) {
    struct str s = {0};
    assert_true(file_read(part, 1 << 30, &s, NULL));
    assert_int_equal(s.n, F.n);
    assert_true(memcmp(s.p, F.bytes, F.n) == 0);
    str_deinit(&s);
}

struct watcher {
    u64 stop_at, last, total;
    int n;
};

static bool on_progress(void *ctx, u64 done, u64 total, double rate) {
    struct watcher *w = ctx;
    assert_true(rate >= 0);
    w->last = done;
    w->total = total;
    w->n++;
    return !w->stop_at || done < w->stop_at;
}

static void whole_in_ranges(void **state) {
    (void)state;
    struct watcher w = {0};
    struct err e = {0};
    start_server();
    struct http_download d = {.url = address,
                              .part_path = part,
                              .size_bytes = FILE_BYTES,
                              .progress = on_progress,
                              .ctx = &w};
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
    assert_true(w.n > 0);
    assert_int_equal(w.last, FILE_BYTES);
    assert_int_equal(w.total, FILE_BYTES);
    assert_true(atomic_load(&F.n_requests) >= 3);
    http_download_forget(part);
    assert_false(file_exists(part));
}

static void server_without_ranges(void **state) {
    (void)state;
    struct err e = {0};
    start_server();
    F.ignore_range = true;
    struct http_download d = {.url = address, .part_path = part};
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
    assert_int_equal(atomic_load(&F.n_requests), 1);
    http_download_forget(part);
    F.fail_first = 2; /* once more, from the beginning */
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
    assert_int_equal(atomic_load(&F.n_requests), 3);
    http_download_forget(part);
    F.send_length = true;
    d.size_bytes = FILE_BYTES;
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
}

static void resumes_after_cancel(void **state) {
    (void)state;
    struct watcher w = {.stop_at = 6 << 20};
    struct err e = {0};
    start_server();
    F.pause_ms = 10;
    struct http_download d = {
        .url = address, .part_path = part, .progress = on_progress, .ctx = &w};
    assert_false(http_download_run(&d, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    u64 have = http_download_have(part);
    assert_true(have >= 6 << 20 && have < FILE_BYTES);
    for (int i = 0; i < 500 && atomic_load(&F.n_open); i++) clock_sleep_ms(10);
    F.pause_ms = 0;
    atomic_store(&F.n_sent, 0);
    w.stop_at = 0;
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
    assert_int_equal(atomic_load(&F.n_sent), FILE_BYTES - have);
}

/* kill -9 in the middle: what was synced before is not fetched again. */
static void resumes_after_kill(void **state) {
    (void)state;
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork(); /* before this process has threads */
    if (pid == 0) {
        struct http_download d = {.url = address, .part_path = part};
        ssize_t n = read(p[0], address, sizeof address);
        _exit(n > 0 && http_download_run(&d, NULL));
    }
    start_server();
    F.pause_ms = 120;
    assert_int_equal(write(p[1], address, sizeof address), sizeof address);
    for (int i = 0; i < 600 && http_download_have(part) < 1 << 20; i++) clock_sleep_ms(10);
    kill(pid, SIGKILL);
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    close(p[0]);
    close(p[1]);
    u64 have = http_download_have(part);
    assert_true(have >= 1 << 20 && have < FILE_BYTES);
    F.pause_ms = 0;
    for (int i = 0; i < 500 && atomic_load(&F.n_open); i++) clock_sleep_ms(10);
    atomic_store(&F.n_sent, 0);
    struct err e = {0};
    struct http_download d = {.url = address, .part_path = part};
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
    assert_int_equal(atomic_load(&F.n_sent), FILE_BYTES - have);
}

/* The server's file changes between two attempts; nothing of the old one may survive. */
static void changed_on_server(void **state) {
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct watcher w = {.stop_at = 6 << 20};
        struct err e = {0};
        if (!S) start_server();
        http_download_forget(part);
        F.no_etag = how == 1; /* without a validator the changed size must do */
        F.etag = "\"one\"";
        fill(FILE_BYTES, 1);
        F.pause_ms = 10;
        struct http_download d = {
            .url = address, .part_path = part, .progress = on_progress, .ctx = &w};
        assert_false(http_download_run(&d, &e));
        for (int i = 0; i < 500 && atomic_load(&F.n_open); i++) clock_sleep_ms(10);
        F.pause_ms = 0;
        F.etag = "\"two\"";
        fill(how ? FILE_BYTES - 5 : FILE_BYTES, 2);
        w.stop_at = 0;
        if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
        assert_same_file();
        for (int i = 0; i < 500 && atomic_load(&F.n_open); i++) clock_sleep_ms(10);
    }
}

/* The page of a network that wants a login, or an error of the server: what has come stays. */
static void another_page_takes_nothing_away(void **state) {
    (void)state;
    struct watcher w = {.stop_at = 6 << 20};
    struct err e = {0};
    start_server();
    F.pause_ms = 10;
    struct http_download d = {.url = address,
                              .part_path = part,
                              .size_bytes = FILE_BYTES,
                              .progress = on_progress,
                              .ctx = &w};
    assert_false(http_download_run(&d, &e));
    u64 have = http_download_have(part);
    assert_true(have >= 6 << 20);
    for (int i = 0; i < 500 && atomic_load(&F.n_open); i++) clock_sleep_ms(10);
    w.stop_at = 0;
    fill(100, 2);
    F.ignore_range = F.send_length = true;
    assert_false(http_download_run(&d, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.msg, "has 100 bytes"));
    assert_int_equal(http_download_have(part), have);
    F.status = 416;
    assert_false(http_download_run(&d, &e));
    assert_int_equal(http_download_have(part), have);
    F.status = 0;
    F.ignore_range = F.send_length = false;
    F.pause_ms = 0;
    fill(FILE_BYTES, 1);
    atomic_store(&F.n_sent, 0);
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
    assert_int_equal(atomic_load(&F.n_sent), FILE_BYTES - have);
}

static void flaky_and_failing(void **state) {
    (void)state;
    struct err e = {0};
    start_server();
    F.fail_first = 2;
    struct http_download d = {.url = address, .part_path = part};
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
    http_download_forget(part);

    static const struct {
        int status;
        enum err_code code;
    } cases[] = {{404, ERR_NOT_FOUND}, {410, ERR_NOT_FOUND}, {401, ERR_AUTH}, {403, ERR_AUTH}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        F.status = cases[i].status;
        assert_false(http_download_run(&d, &e));
        assert_int_equal(e.code, cases[i].code);
    }
    F.status = 0;
    d.size_bytes = 77;
    assert_false(http_download_run(&d, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_non_null(strstr(e.msg, "77"));
    d.part_path = "/nowhere/at/all";
    assert_false(http_download_run(&d, &e));
    assert_int_equal(e.code, ERR_IO);
}

static void part_file_lost(void **state) {
    (void)state;
    struct watcher w = {.stop_at = 6 << 20};
    struct err e = {0};
    start_server();
    F.pause_ms = 10;
    struct http_download d = {
        .url = address, .part_path = part, .progress = on_progress, .ctx = &w};
    assert_false(http_download_run(&d, &e));
    F.pause_ms = 0;
    /* The state alone is worth nothing. */
    assert_true(http_download_have(part) > 0);
    assert_int_equal(truncate(part, 1000), 0);
    assert_int_equal(http_download_have(part), 0);
    unlink(part);
    assert_int_equal(http_download_have(part), 0);
    w.stop_at = 0;
    if (!http_download_run(&d, &e)) fail_msg("%s", e.msg);
    assert_same_file();
}

static void state_file(void **state) {
    (void)state;
    struct download_state s, t;
    assert_true(download_state_init(&s, 20 << 20, "\"tag\""));
    assert_int_equal(s.n_chunks, 3);
    assert_int_equal(download_state_len(&s, 2), 4 << 20);
    s.done[1] = 5;
    s.done[2] = 4 << 20;
    assert_true(download_state_save(&s, part, NULL));
    struct str bytes = {0};
    assert_true(file_read(part, 1 << 20, &bytes, NULL));
    assert_true(download_state_parse(&t, bytes.p, bytes.n));
    assert_int_equal(download_state_have(&t), 5 + (4 << 20));
    assert_string_equal(t.validator, "\"tag\"");
    download_state_deinit(&t);
    /* Cut anywhere, or lengthened, it is not a state. */
    for (size_t n = 0; n < bytes.n; n++) assert_false(download_state_parse(&t, bytes.p, n));
    str_addc(&bytes, 0);
    assert_false(download_state_parse(&t, bytes.p, bytes.n));
    bytes.p[bytes.n - 2] = 0x7F; /* more bytes than the chunk has */
    assert_false(download_state_parse(&t, bytes.p, bytes.n - 1));
    download_state_deinit(&s);
    str_deinit(&bytes);
    unlink(part);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(resumes_after_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(whole_in_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(server_without_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(resumes_after_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(changed_on_server, setup, teardown),
        cmocka_unit_test_setup_teardown(another_page_takes_nothing_away, setup, teardown),
        cmocka_unit_test_setup_teardown(flaky_and_failing, setup, teardown),
        cmocka_unit_test_setup_teardown(part_file_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(state_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
