/* http_curl.h - what http_client.c and http_download.c share about libcurl. Not for others. */
#pragma once

#include <curl/curl.h>

#include "base/err.h"

/* A handle with our defaults (timeouts, redirects, protocols, proxy rules, no signals) for url.
 * NULL and ERR_ARG when it is no http or https URL. error_text: [CURL_ERROR_SIZE], must outlive the
 * handle. */
CURL *http_curl_new(const char *url, u32 connect_timeout_ms, char *error_text, struct err *e);
/* "host:port" of a URL for messages, or "?". */
void http_curl_host(const char *url, char *out, size_t cap);
/* The sentence for a transfer that failed. Always false. */
bool http_curl_fail(CURLcode code, const char *url, const char *error_text, struct err *e);
