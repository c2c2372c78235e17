#include "net/identity.h"

#include <string.h>

#include "base/hash.h"
#include "base/test.h"

static void signatures(void **state) {
    (void)state;
    struct identity a, b, again;
    u8 s[64];
    assert_true(identity_make(&a, NULL) && identity_make(&b, NULL));
    assert_true(strcmp(a.id, b.id) != 0);
    assert_int_equal(strlen(a.id), 32);
    assert_true(identity_of_seed(&again, a.seed, NULL));
    assert_memory_equal(&a, &again, sizeof a);
    identity_sign(&a, VIEW("text"), s);
    assert_true(identity_verify(a.public, VIEW("text"), s));
    assert_false(identity_verify(a.public, VIEW("Text"), s));
    assert_false(identity_verify(b.public, VIEW("text"), s));
    s[0] ^= 1;
    assert_false(identity_verify(a.public, VIEW("text"), s));
}

/* RFC 8032, 7.1, test 1, and the id that must never change: it is on people's disks. */
static void known_key(void **state) {
    (void)state;
    struct identity i;
    u8 seed[32], public[32], want[64], s[64];
    assert_true(
        hex_decode("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", seed, 32));
    assert_true(
        hex_decode("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", public, 32));
    assert_true(identity_of_seed(&i, seed, NULL));
    assert_memory_equal(i.public, public, 32);
    assert_true(hex_decode("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821"
                           "590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
                           want, 64));
    identity_sign(&i, (struct view){"", 0}, s);
    assert_memory_equal(s, want, 64);
    assert_string_equal(i.id, "066c2980e2a1a53365e099a6e5f26c0c");
}

static void files(void **state) {
    (void)state;
    struct identity_file f = {0}, g;
    struct str s = {0};
    struct err e = {0};
    memset(f.seed, 7, sizeof f.seed);
    identity_file_write(&f, &s);
    assert_true(identity_file_parse(str_view(&s), &g, &e));
    assert_memory_equal(&f, &g, sizeof f);
    memset(f.machine, 'a', 64);
    str_clear(&s);
    identity_file_write(&f, &s);
    assert_true(identity_file_parse(str_view(&s), &g, &e));
    assert_string_equal(g.machine, f.machine);
    for (size_t n = 0; n < s.n - 1; n++)
        if (identity_file_parse((struct view){s.p, n}, &g, &e)) assert_string_equal(g.machine, "");
    assert_false(identity_file_parse(VIEW("skein-node-key 1\nseed xyz\n"), &g, &e));
    assert_string_equal(e.msg, "line 2 is neither a seed nor a machine of 64 digits");
    assert_false(identity_file_parse(VIEW("skein-node-key 1\n"), &g, &e));
    assert_string_equal(e.msg, "the seed is missing");
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures),
        cmocka_unit_test(known_key),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
