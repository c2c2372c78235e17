#include "net/discovery_txt.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool copy_text(struct view v, char *out, size_t cap) {
    if (v.n >= cap || !utf8_valid(v.p, v.n)) return false;
    for (size_t i = 0; i < v.n; i++)
        if ((u8)v.p[i] < ' ' || v.p[i] == 0x7f) return false;
    memcpy(out, v.p, v.n);
    out[v.n] = 0;
    return true;
}

static bool number(struct view v, u32 base, u64 max, u64 *out) {
    u64 x = 0;
    if (v.n == 0 || v.n > 20) return false;
    for (size_t i = 0; i < v.n; i++) {
        char c = v.p[i];
        u32 digit = c >= '0' && c <= '9'   ? (u32)(c - '0')
                    : c >= 'a' && c <= 'f' ? (u32)(c - 'a') + 10
                                           : 99;
        if (digit >= base || !size_mul(x, base, &x) || !size_add(x, digit, &x) || x > max)
            return false;
    }
    *out = x;
    return true;
}

static bool is_id(struct view v) {
    if (v.n != 32) return false;
    for (size_t i = 0; i < v.n; i++)
        if (!((v.p[i] >= '0' && v.p[i] <= '9') || (v.p[i] >= 'a' && v.p[i] <= 'f'))) return false;
    return true;
}

enum { KEY_ID, KEY_NS, KEY_V, KEY_BUS, KEY_API, KEY_BOOT, KEY_N };
static const char *const KEYS[KEY_N] = {"id", "ns", "v", "bus", "api", "boot"};

static bool take(struct discovery_info *o, int key, struct view v) {
    u64 x = 0;
    switch (key) {
    case KEY_ID: return is_id(v) && copy_text(v, o->node_id, sizeof o->node_id);
    case KEY_NS: return copy_text(v, o->name_space, sizeof o->name_space);
    case KEY_V: return copy_text(v, o->version, sizeof o->version);
    case KEY_BUS:
        if (!number(v, 10, 65535, &x) || x == 0) return false;
        o->bus_port = (u16)x;
        return true;
    case KEY_API:
        if (!number(v, 10, 65535, &x)) return false;
        o->api_port = (u16)x;
        return true;
    default:
        if (v.n > 16 || !number(v, 16, UINT64_MAX, &x)) return false;
        o->boot = x;
        return true;
    }
}

bool discovery_txt_parse(const void *txt, size_t n, struct discovery_info *out, struct err *e) {
    const char *p = txt;
    bool seen[KEY_N] = {false};
    *out = (struct discovery_info){0};
    if (n > DISCOVERY_TXT_MAX) return err_set(e, ERR_LIMIT, "a TXT record of %zu bytes", n);
    for (size_t at = 0; at < n;) {
        size_t len = (u8)p[at++];
        if (len > n - at) return err_set(e, ERR_FORMAT, "a TXT record that is cut short");
        struct view item = {p + at, len};
        at += len;
        const char *eq = len ? memchr(item.p, '=', len) : NULL;
        for (int k = 0; eq && k < KEY_N; k++) {
            size_t key_n = (size_t)(eq - item.p);
            if (seen[k] || key_n != strlen(KEYS[k]) || strncasecmp(item.p, KEYS[k], key_n) != 0)
                continue;
            seen[k] = true;
            if (!take(out, k, (struct view){eq + 1, len - key_n - 1}))
                return err_set(e, ERR_FORMAT, "a TXT record with a bad value of %s", KEYS[k]);
        }
    }
    if (!seen[KEY_ID] || !seen[KEY_BUS])
        return err_set(e, ERR_FORMAT, "a TXT record without id and bus: another program's");
    return true;
}

static void add(struct str *out, const char *key, const char *value) {
    char item[256];
    size_t key_n = strlen(key) + 1, n = MIN(strlen(value), 255 - key_n);
    while (n && !utf8_valid(value, n)) n--; /* not in the middle of a character */
    int k = snprintf(item, sizeof item, "%s=%.*s", key, (int)n, value);
    str_addc(out, (char)k);
    str_add(out, item, (size_t)k);
}

void discovery_txt_write(const struct discovery_info *info, struct str *out) {
    char text[32];
    add(out, "txtvers", "1");
    add(out, "id", info->node_id);
    add(out, "ns", info->name_space);
    add(out, "v", info->version);
    snprintf(text, sizeof text, "%u", info->bus_port);
    add(out, "bus", text);
    snprintf(text, sizeof text, "%u", info->api_port);
    add(out, "api", text);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)info->boot);
    add(out, "boot", text);
}
