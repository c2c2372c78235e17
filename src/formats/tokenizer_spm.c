#include <string.h>

#include "formats/tokenizer_impl.h"

/* SentencePiece BPE (Kudo and Richardson 2018): neighbours merge when their joined text is a token,
 * the one with the highest score first. */

/* Floats in descending order as unsigned integers in ascending order. */
static u32 descending(float score) {
    u32 bits;
    score += 0.0f; /* -0 becomes +0 */
    memcpy(&bits, &score, 4);
    return bits & 0x80000000u ? bits : ~bits & 0x7FFFFFFFu;
}

static bool joined_token(const struct tokenizer *t, const char *text,
                         const struct tokenizer_symbol *l, const struct tokenizer_symbol *r,
                         u32 *priority, u32 *result) {
    u32 len = l->len + r->len;
    if (len > t->text_len_max) return false;
    i64 id = strtab_find(&t->text, (struct view){text + l->off, len});
    if (id < 0) return false;
    *priority = descending(t->score[id]);
    *result = (u32)id;
    return true;
}

void tokenizer_spm_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                          bool space_before, struct token_list *out) {
    str_clear(&s->text);
    if (space_before) str_addz(&s->text, TOKENIZER_SPACE);
    tokenizer_add_escaped(&s->text, text);
    const char *p = str_z(&s->text);
    tokenizer_list_clear(&s->list);
    for (size_t i = 0; i < s->text.n;) {
        u32 len = tokenizer_char_len((u8)p[i], s->text.n - i);
        i64 id = strtab_find(&t->text, (struct view){p + i, len});
        tokenizer_list_add(&s->list, (u32)i, len, id < 0 ? TOKENIZER_NONE : (u32)id);
        i += len;
    }
    tokenizer_list_merge(&s->list, t, p, joined_token);

    for (i32 i = s->list.n ? 0 : -1; i >= 0; i = s->list.symbol[i].next) {
        const struct tokenizer_symbol *sym = &s->list.symbol[i];
        if (sym->id != TOKENIZER_NONE) {
            token_list_add(out, (i32)sym->id);
            continue;
        }
        for (u32 k = 0; k < sym->len; k++) tokenizer_add_byte(t, (u8)p[sym->off + k], out);
    }
}
