#include <string.h>

#include "formats/tokenizer_impl.h"

/* Byte-level BPE: each character is a byte. Others, which only a hand-made vocabulary has, stand
 * for themselves. */
static void add_byte_level(struct str *out, struct view s) {
    for (size_t i = 0; i < s.n;) {
        u32 cp;
        size_t len = (size_t)utf8_decode(s.p + i, s.n - i, &cp);
        int byte = len > 0 ? tokenizer_bpe_byte(cp) : -1;
        len = MAX(len, 1);
        if (byte >= 0)
            str_addc(out, (char)byte);
        else
            str_add(out, s.p + i, len);
        i += len;
    }
}

static void add_unescaped(struct str *out, struct view s) {
    for (size_t i = 0; i < s.n;) {
        bool space = s.n - i >= 3 && memcmp(s.p + i, TOKENIZER_SPACE, 3) == 0;
        str_addc(out, space ? ' ' : s.p[i]);
        i += space ? 3 : 1;
    }
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>" */
static void add_byte_token(struct str *out, struct view s) {
    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0) return;
    int high = hex_digit(s.p[3]), low = hex_digit(s.p[4]);
    if (high >= 0 && low >= 0) str_addc(out, (char)(high << 4 | low));
}

void detok_piece(const struct tokenizer *t, u32 id, bool special, struct str *out) {
    if (id >= t->n_vocab) return;
    struct view s = strtab_get(&t->text, id);
    u32 flags = t->flags[id];
    if (flags & (TOKEN_CONTROL | TOKEN_UNKNOWN)) {
        if (special) str_addv(out, s);
    } else if (flags & TOKEN_USER) {
        str_addv(out, s);
    } else if (flags & TOKEN_BYTE) {
        add_byte_token(out, s);
    } else if (flags & (TOKEN_UNUSED | TOKEN_UNDEFINED)) {
        return;
    } else if (t->escape_spaces) {
        add_unescaped(out, s);
    } else if (t->kind == TOKENIZER_BPE) {
        add_byte_level(out, s);
    }
}

/* In place in `out`: no allocation per token once out has room. */
void detok_add(const struct tokenizer *t, struct detok *d, u32 id, bool special, struct str *out) {
    size_t start = out->n;
    str_add(out, d->tail, d->n_tail);
    detok_piece(t, id, special, out);
    if (out->n == start) return;
    if (!d->started && t->add_space_prefix && out->p[start] == ' ') {
        out->n--;
        memmove(out->p + start, out->p + start + 1, out->n - start);
    }
    d->started = true;
    d->n_tail = (u32)utf8_incomplete_tail(out->p + start, out->n - start);
    out->n -= d->n_tail;
    memcpy(d->tail, out->p + out->n, d->n_tail);
    if (!utf8_valid(out->p + start, out->n - start)) {
        struct str clean = {0};
        utf8_add_lossy(&clean, out->p + start, out->n - start);
        out->n = start;
        str_addv(out, str_view(&clean));
        str_deinit(&clean);
    }
    out->p[out->n] = 0;
}

void detok_end(struct detok *d, struct str *out) {
    if (d->n_tail > 0) str_addz(out, "\xEF\xBF\xBD");
    *d = (struct detok){.started = true};
}
