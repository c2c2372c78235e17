/* The ids of llama.cpp, recorded by tools/record_tokens.py (which documents the files), against
 * ours: every text of corpus.txt under every recording. Those of a published model need its file in
 * the folder that SKEIN_TEST_MODELS names. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "formats/test_vocab.h"

#define FOLDER "tests/golden/tokens/"

/* A text file as lines, or a whole file as one. */
struct lines {
    struct str bytes;
    struct view *line;
    size_t n;
};

static bool read_file(const char *path, struct str *out) {
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    char block[1 << 16];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) str_add(out, block, n);
    fclose(f);
    return true;
}

static struct lines read_lines(const char *name) {
    char path[512];
    snprintf(path, sizeof path, FOLDER "%s", name);
    struct lines l = {0};
    if (!read_file(path, &l.bytes)) fail_msg("can't read %s (tests run in the top folder)", path);
    for (size_t start = 0, i = 0; i < l.bytes.n; i++) {
        if (l.bytes.p[i] != '\n') continue;
        l.line = realloc(l.line, (l.n + 1) * sizeof *l.line);
        assert_non_null(l.line);
        l.line[l.n++] = (struct view){l.bytes.p + start, i - start};
        start = i + 1;
    }
    return l;
}

static void free_lines(struct lines *l) {
    str_deinit(&l->bytes);
    free(l->line);
}

/* \n, \r, \t, \\ and \xNN. */
static void unescape(struct view s, struct str *out) {
    str_clear(out);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '\\') {
            str_addc(out, s.p[i]);
            continue;
        }
        char c = s.p[++i], hex[3] = {0};
        if (c == 'x') {
            memcpy(hex, s.p + i + 1, 2);
            i += 2;
        }
        str_addc(out, c == 'x'   ? (char)strtol(hex, NULL, 16)
                      : c == 'n' ? '\n'
                      : c == 'r' ? '\r'
                      : c == 't' ? '\t'
                                 : c);
    }
}

/* The next word of *s, which shrinks to what follows the space. */
static struct view word(struct view *s) {
    const char *space = memchr(s->p, ' ', s->n);
    struct view w = {s->p, space ? (size_t)(space - s->p) : s->n};
    *s = (struct view){w.p + w.n + (space != NULL), s->n - w.n - (space != NULL)};
    return w;
}

static void add_key(struct test_vocab *v, struct view what, struct view rest) {
    char key[128], value[128];
    struct view k = word(&rest);
    snprintf(key, sizeof key, "%.*s", VIEW_FMT(k));
    snprintf(value, sizeof value, "%.*s", VIEW_FMT(rest));
    if (view_is(what, "str"))
        gguf_writer_str(&v->w, key, value);
    else if (view_is(what, "u32"))
        gguf_writer_u32(&v->w, key, (u32)strtoul(value, NULL, 10));
    else if (view_is(what, "bool"))
        gguf_writer_bool(&v->w, key, value[0] == '1');
    else if (view_is(what, "bytes")) {
        struct str b = {0};
        for (size_t i = 0; i + 1 < rest.n; i += 2) {
            char hex[3] = {rest.p[i], rest.p[i + 1], 0};
            str_addc(&b, (char)strtol(hex, NULL, 16));
        }
        gguf_writer_array(&v->w, key, GGUF_U8, b.n, b.p, b.n);
        str_deinit(&b);
    }
}

static void add_line(struct test_vocab *v, struct view line) {
    struct view what = word(&line);
    struct str text = {0};
    if (view_is(what, "t")) {
        i32 type = (i32)strtol(word(&line).p, NULL, 10);
        float score = strtof(word(&line).p, NULL);
        unescape(line, &text);
        test_vocab_token(v, str_view(&text), type, score);
    } else if (view_is(what, "m")) {
        unescape(line, &text);
        test_vocab_merge(v, str_view(&text));
    } else if (view_is(what, "pairs")) {
        test_vocab_pairs(v);
    } else {
        add_key(v, what, line);
    }
    str_deinit(&text);
}

/* A GGUF file of <name>.vocab and the header lines of a recording. */
static void build_vocab(struct view name, const struct lines *rec, size_t n_header,
                        struct str *out) {
    char file[64];
    snprintf(file, sizeof file, "%.*s.vocab", VIEW_FMT(name));
    struct lines l = read_lines(file);
    struct test_vocab v = {0};
    for (size_t i = 0; i < l.n; i++) add_line(&v, l.line[i]);
    for (size_t i = 1; i < n_header; i++) {
        struct view rest = rec->line[i], what = word(&rest);
        add_key(&v, what, rest);
    }
    test_vocab_finish(&v, out);
    free_lines(&l);
}

static bool read_model(struct view file, struct str *out) {
    const char *folder = getenv("SKEIN_TEST_MODELS");
    char path[1024];
    snprintf(path, sizeof path, "%s/%.*s", folder ? folder : ".", VIEW_FMT(file));
    return folder && read_file(path, out);
}

static u64 fnv(const struct token_list *l) {
    u64 h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < l->n * 4; i++) h = (h ^ ((const u8 *)l->id)[i]) * 0x100000001B3u;
    return h;
}

static void check_eog(const struct tokenizer *t, struct view line) {
    for (u32 id = 0; id < tokenizer_n_vocab(t); id++) {
        if (!(tokenizer_flags(t, id) & TOKEN_EOG)) continue;
        struct view want = word(&line);
        assert_true(want.n > 0);
        assert_int_equal(id, strtol(want.p, NULL, 10));
    }
    assert_int_equal(line.n, 0);
}

static void check_text(const struct tokenizer *t, struct tokenizer_scratch *s, struct view escaped,
                       struct view want, const char *name) {
    struct str text = {0};
    struct token_list ids = {0};
    struct err e = {0};
    unescape(escaped, &text);
    assert_true(tokenizer_encode(t, s, str_view(&text), false, true, &ids, &e));
    size_t n = ids.n;
    token_list_add(&ids, -1);
    assert_true(tokenizer_encode(t, s, str_view(&text), true, false, &ids, &e));
    struct view hash = word(&want);
    struct str shown = {0};
    for (size_t i = 0; want.n > 0 && i < n; i++) str_addf(&shown, i ? " %d" : "%d", ids.id[i]);
    if (want.n > 0 && !view_eq(want, str_view(&shown)))
        fail_msg("%s: %.*s: %s instead of %.*s", name, VIEW_FMT(escaped), str_z(&shown),
                 VIEW_FMT(want));
    if (strtoull(hash.p, NULL, 16) != fnv(&ids))
        fail_msg("%s: other ids than recorded for: %.*s", name, VIEW_FMT(escaped));
    str_deinit(&shown);
    str_deinit(&text);
    token_list_deinit(&ids);
}

/* Where encoding is no one-way street, decoding gives the text back. A unigram model normalizes, a
 * token that strips drops white space, and SentencePiece adds a space behind a user-defined one. */
static bool is_lossy(const char *name) {
    return strncmp(name, "ugm", 3) == 0 || strcmp(name, "spm.ids") == 0 ||
           strcmp(name, "spm-phi3.ids") == 0 || strcmp(name, "pairs-jina-v2-code.ids") == 0;
}

/* "▁" is left out: it comes back as a space. */
static void check_round_trip(const struct tokenizer *t, struct tokenizer_scratch *s,
                             struct view escaped, const char *name) {
    struct str text = {0}, back = {0};
    struct token_list ids = {0};
    struct err e = {0};
    unescape(escaped, &text);
    struct view v = str_view(&text);
    bool fair = utf8_valid(v.p, v.n) && !memmem(v.p, v.n, TOKENIZER_SPACE, 3);
    if (fair) assert_true(tokenizer_encode(t, s, v, false, false, &ids, &e));
    struct detok d = {0};
    for (size_t i = 0; i < ids.n; i++) detok_add(t, &d, (u32)ids.id[i], false, &back);
    detok_end(&d, &back);
    if (fair && !view_eq(str_view(&back), v))
        fail_msg("%s: %.*s comes back as %s", name, VIEW_FMT(escaped), str_z(&back));
    str_deinit(&text);
    str_deinit(&back);
    token_list_deinit(&ids);
}

/* False when the model file is not there. */
static bool check_recording(const char *name, const struct lines *corpus) {
    struct lines rec = read_lines(name);
    size_t n_header = 1; /* behind the comment: vocab or model, metadata, eog */
    while (n_header < rec.n && !view_starts(rec.line[n_header], "eog")) n_header++;
    assert_int_equal(rec.n, n_header + 1 + corpus->n);
    struct view source = rec.line[1], what = word(&source);
    struct str file = {0};
    bool have = true;
    if (view_is(what, "vocab"))
        build_vocab(source, &rec, n_header, &file);
    else
        have = read_model(source, &file);
    if (have) {
        struct err e = {0};
        struct tokenizer *t = test_vocab_load(&file, &e);
        if (!t) fail_msg("%s: %s", name, e.msg);
        struct tokenizer_scratch *s = tokenizer_scratch_new(t);
        struct view eog = rec.line[n_header];
        word(&eog);
        check_eog(t, eog);
        bool lossy = is_lossy(name);
        for (size_t i = 0; i < corpus->n; i++) {
            check_text(t, s, corpus->line[i], rec.line[n_header + 1 + i], name);
            if (!lossy) check_round_trip(t, s, corpus->line[i], name);
        }
        tokenizer_scratch_free(s);
        tokenizer_free(t);
    }
    free_lines(&rec);
    str_deinit(&file);
    return have;
}

static void every_recording_holds(void **state) {
    (void)state;
    struct lines corpus = read_lines("corpus.txt");
    assert_true(corpus.n >= 2000);
    DIR *d = opendir(FOLDER);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 4 || strcmp(e->d_name + len - 4, ".ids") != 0) continue;
        if (check_recording(e->d_name, &corpus))
            n++;
        else
            printf("skipped: %s needs its model in SKEIN_TEST_MODELS\n", e->d_name);
    }
    closedir(d);
    printf("%d recordings of %zu texts\n", n, corpus.n);
    assert_true(n >= 41); /* all that need no download */
    free_lines(&corpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_recording_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
