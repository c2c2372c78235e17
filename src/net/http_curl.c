#include "net/http_curl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "base/version.h"

static void init_once(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static bool is_loopback_name(const char *host) {
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "[::1]") == 0;
}

/* Copies one part of a URL; "" when it has none. */
static bool url_part(CURLU *u, CURLUPart part, char *out, size_t cap) {
    char *text = NULL;
    out[0] = '\0';
    if (curl_url_get(u, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return false;
    bool ok = str_copy(out, cap, text);
    curl_free(text);
    return ok;
}

static bool parse(const char *url, char host[256], char port[8]) {
    CURLU *u = curl_url();
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              url_part(u, CURLUPART_HOST, host, 256) && url_part(u, CURLUPART_PORT, port, 8);
    curl_url_cleanup(u);
    return ok;
}

void http_curl_host(const char *url, char *out, size_t cap) {
    char host[256], port[8];
    if (parse(url, host, port))
        snprintf(out, cap, "%s:%s", host, port);
    else
        str_copy(out, cap, "?");
}

CURL *http_curl_new(const char *url, u32 connect_timeout_ms, char *error_text, struct err *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char host[256], port[8];
    pthread_once(&once, init_once);
    bool is_http = strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
    if (!is_http || !parse(url, host, port)) {
        err_set(e, ERR_ARG, "\"%.300s\" is no http or https URL", url);
        return NULL;
    }
    CURL *c = curl_easy_init();
    if (!c) {
        err_set(e, ERR_INTERNAL, "libcurl did not start");
        return NULL;
    }
    error_text[0] = '\0';
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error_text);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_USERAGENT, "skein/" SKEIN_VERSION);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(connect_timeout_ms ? connect_timeout_ms : 5000));
    /* As the curl program does; the library alone does not look at it. */
    const char *authorities = getenv("SSL_CERT_FILE");
    if (authorities && *authorities) curl_easy_setopt(c, CURLOPT_CAINFO, authorities);
    /* Otherwise libcurl reads the proxy variables itself, no_proxy included. */
    if (is_loopback_name(host)) curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    return c;
}

bool http_curl_fail(CURLcode code, const char *url, const char *error_text, struct err *e) {
    char host[280];
    http_curl_host(url, host, sizeof host);
    const char *why = *error_text ? error_text : curl_easy_strerror(code);
    if (code == CURLE_COULDNT_RESOLVE_HOST) return err_set(e, ERR_NET, "%s", why); /* names it */
    if (code == CURLE_OPERATION_TIMEDOUT && !strstr(why, "onnect")) {
        return err_set(e, ERR_NET, "%s: no answer, or too slow a one: %s", host, why);
    }
    return err_set(e, ERR_NET, "%s: %s", host, why);
}
