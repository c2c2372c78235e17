/* Who may do what over HTTP: every route of the table, asked by this machine, by others with and
 * without the key, and by a page of another origin. */
#include <stdio.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/sysinfo.h"
#include "base/test.h"

/* These generate text and change nothing that stays; what a request may not make the cluster do
 * is api_may_ask's business. Everything else that is not a GET changes the cluster. */
static const char *const GENERATE[] = {"/v1/chat/completions", "/chat/completions"};

static bool generates(const struct api_route *t) {
    for (size_t i = 0; i < ARRAY_LEN(GENERATE); i++)
        if (strcmp(GENERATE[i], t->path) == 0) return true;
    return false;
}

static void what_is_no_get_changes_the_cluster(void **state) {
    (void)state;
    u32 n_changes = 0;
    for (u32 i = 0; i < API_N_ROUTES; i++) {
        const struct api_route *t = &API_ROUTES[i];
        bool get = strcmp(t->method, "GET") == 0;
        if (get && t->changes) fail_msg("GET %s can't change anything", t->path);
        if (!get && !t->changes && !generates(t))
            fail_msg("%s %s needs no key: is that right?", t->method, t->path);
        n_changes += t->changes;
    }
    assert_true(n_changes >= 3);
}

static struct http_req from(bool loopback, const struct http_pair *headers, size_t n) {
    return (struct http_req){.method = "POST",
                             .path = "/x",
                             .body = "",
                             .remote = loopback ? "127.0.0.1" : "192.168.1.9",
                             .is_loopback = loopback,
                             .headers = headers,
                             .n_headers = n};
}

/* A name is made to mean 127.0.0.1 once its page is loaded: the origin is then this node's, and
 * only Host tells. */
static void names_that_are_not_this_machines_change_nothing(void **state) {
    (void)state;
    char own[256], with_port[300];
    sysinfo_hostname(own, sizeof own);
    snprintf(with_port, sizeof with_port, "%s:52415", own);
    const struct {
        const char *host;
        bool may;
    } CASES[] = {
        {"evil.test:52415", false},
        {"evil.test", false},
        {"localhost.evil.test:52415", false},
        {"127.0.0.1.evil.test", false},
        {"evillocal", false},
        {".local", false},
        {"[::1", false},
        {":52415", false},
        {"localhost:52415", true},
        {"LOCALHOST.", true},
        {"skein.localhost:52415", true},
        {"127.0.0.1:52415", true},
        {"192.168.1.9", true},
        {"[::1]:52415", true},
        {"studio.local:52415", true},
        {own, true},
        {with_port, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        char origin[400];
        snprintf(origin, sizeof origin, "http://%s", CASES[i].host);
        const struct http_pair h[] = {{"Host", CASES[i].host},
                                      {"Origin", origin},
                                      {"Authorization", "Bearer secret"}};
        struct http_req plain = from(true, h, 1), page = from(true, h, 2), keyed = from(true, h, 3);
        struct fault f = {0};
        assert_int_equal(api_may_change("secret", &plain, &f), CASES[i].may);
        if (api_may_change(NULL, &page, &f) != CASES[i].may)
            fail_msg("%s: %s", CASES[i].host, f.e.msg);
        if (!CASES[i].may) assert_non_null(strstr(f.e.msg, "no name of this machine"));
        assert_true(api_may_change("secret", &keyed, &f)); /* which nobody can guess */
    }
}

static void who_may_change_the_cluster(void **state) {
    (void)state;
    static const struct {
        const char *key; /* of the node */
        bool loopback;
        struct http_pair h[2];
        size_t n;
        bool may;
        const char *says;
    } CASES[] = {
        {NULL, true, {{0}}, 0, true, ""},
        {"secret", true, {{0}}, 0, true, ""},
        {NULL, false, {{0}}, 0, false, "--api-key"},
        {NULL, false, {{"Authorization", "Bearer "}}, 1, false, "--api-key"},
        {"secret", false, {{0}}, 0, false, "Authorization: Bearer"},
        {"secret", false, {{"Authorization", "Bearer secret"}}, 1, true, ""},
        {"secret", false, {{"authorization", "Bearer secret"}}, 1, true, ""},
        {"secret", false, {{"Authorization", "Bearer secre"}}, 1, false, "missing or wrong"},
        {"secret", false, {{"Authorization", "Bearer secrets"}}, 1, false, "missing or wrong"},
        {"secret", false, {{"Authorization", "Bearer"}}, 1, false, "missing or wrong"},
        {"secret", false, {{"Authorization", "Basic secret"}}, 1, false, "missing or wrong"},
        /* A page elsewhere can't use the browser of this machine's user. */
        {NULL,
         true,
         {{"Origin", "http://evil.test"}, {"Host", "localhost:52415"}},
         2,
         false,
         "another origin"},
        {NULL, true, {{"Origin", "null"}, {"Host", "localhost:52415"}}, 2, false, "another origin"},
        {NULL,
         true,
         {{"Origin", "http://localhost:52415"}, {"Host", "localhost:52415"}},
         2,
         true,
         ""},
        {"secret",
         false,
         {{"Origin", "http://evil.test"}, {"Authorization", "Bearer secret"}},
         2,
         false,
         "another origin"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct fault f = {0};
        struct http_req r = from(CASES[i].loopback, CASES[i].h, CASES[i].n);
        bool may = api_may_change(CASES[i].key, &r, &f);
        if (may != CASES[i].may || !strstr(f.e.msg, CASES[i].says))
            fail_msg("case %zu: may=%d: %s", i, may, f.e.msg);
        if (!may) assert_int_equal(f.e.code, ERR_AUTH);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_get_changes_the_cluster),
        cmocka_unit_test(who_may_change_the_cluster),
        cmocka_unit_test(names_that_are_not_this_machines_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
