#include "cli/nodes_table.h"

#include <string.h>

#include "base/test.h"

static const char STATE[] =
    "{\"cluster_is_open\":true,\"nodes\":["
    "{\"id\":\"aaaaaaaaaaaa\",\"name\":\"studio\",\"state\":\"self\",\"is_master\":true,"
    "\"role\":\"worker\",\"memory\":137438953472,\"memory_available\":120259084288,\"cores\":16,"
    "\"cores_big\":12,\"cpu\":\"Apple M3 Ultra\",\"model\":\"Mac15,14\",\"os\":\"macOS 26.2\","
    "\"build\":\"0.1.0 (build 1)\",\"isa\":\"dotprod\",\"read_bytes_per_s\":415200000000,"
    "\"temperature_c\":44,\"power_w\":5.876,\"is_throttled\":false,\"gpus\":[{\"name\":\"Apple "
    "GPU\"}],\"shards\":[{\"model\":\"m\",\"layer_first\":0,\"layer_end\":15,\"n_layers\":30,"
    "\"status\":\"loading\"}],\"memory_instances\":1048576},"
    "{\"id\":\"bbbbbbbbbbbb\",\"name\":\"pi\",\"state\":\"lost\",\"is_master\":false,\"role\":"
    "\"coordinator\",\"memory\":8589934592,\"cores\":4,\"cpu\":\"Cortex-A76\",\"build\":\"0.1.0\","
    "\"address\":\"192.168.1.7:52416\",\"seen_ms_ago\":12345,\"is_throttled\":true,\"throttle\":"
    "\"undervoltage\",\"gpus\":[]}],"
    "\"refused\":[{\"id\":\"old\",\"address\":\"10.0.0.9:52416\",\"reason\":\"speaks protocol "
    "0\"},{\"id\":\"k\",\"address\":\"10.0.0.8:52416\",\"reason\":\"refuses our key\"},"
    "{\"id\":\"k\",\"address\":\"[fe80::8%en0]:52416\",\"reason\":\"refuses our key\"}],"
    "\"links\":[{\"from\":\"aaaaaaaaaaaa\",\"to\":\"bbbbbbbbbbbb\",\"interface\":\"en0\",\"kind\":"
    "\"ethernet\",\"speed_mbit\":10000,\"mtu\":9000,\"jumbo\":true,\"rtt_us\":180,\"rtt_p99_us\":"
    "2450,\"bandwidth_bytes_per_s\":1176000000},"
    "{\"from\":\"bbbbbbbbbbbb\",\"to\":\"aaaaaaaaaaaa\",\"kind\":\"unknown\",\"problem\":\"a "
    "firewall\"}]}";

static json_t *state_json(const char *text) {
    struct err e = {0};
    json_t *j = json_parse(view_of(text), &e);
    if (!j) fail_msg("%s", e.msg);
    return j;
}

static void has(const struct str *o, const char *line) {
    if (!strstr(str_z(o), line)) fail_msg("no \"%s\" in:\n%s", line, str_z(o));
}

static void nodes_with_their_hardware(void **state) {
    (void)state;
    json_t *j = state_json(STATE);
    struct str o = {0};
    nodes_table(j, &o);
    has(&o, "studio*                  aaaaaa   live     worker          16   415 GB/s   112 GiB   "
            "128 GiB   "
            "44 C   5.9 W  0.1.0    (this node)\n");
    has(&o, "  Mac15,14, Apple M3 Ultra, dotprod, 12 fast cores, Apple GPU, macOS 26.2\n");
    has(&o, "  holds m 0-14 of 30 (loading), 1.0 MiB\n");
    has(&o, "pi                       bbbbbb   lost     coordinator      4          -         -   "
            "8.0 GiB   "
            "   -       -  0.1.0    192.168.1.7:52416\n");
    has(&o, "  Cortex-A76, SLOWED DOWN (undervoltage), last heard 12 s ago\n");
    has(&o, "* master; the cluster has no join key: it is open\n");
    has(&o, "refused: old at 10.0.0.9:52416: speaks protocol 0\n");
    has(&o, "refused: k at 10.0.0.8:52416, [fe80::8%en0]:52416: refuses our key\n");
    str_deinit(&o);
    json_decref(j);
}

/* What `--nodes` takes: no two rows show the same beginning of an id. */
static void ids_are_as_long_as_they_must_be(void **state) {
    (void)state;
    json_t *j = state_json("{\"nodes\":[{\"id\":\"12345678aa\",\"name\":\"x\",\"state\":\"self\"},"
                           "{\"id\":\"12345678ab\",\"name\":\"x\",\"state\":\"lost\"},"
                           "{\"id\":\"1234567800\",\"name\":\"y\",\"state\":\"lost\","
                           "\"is_stopped\":true},"
                           "{\"id\":\"fedcba9876\",\"name\":\"z\",\"state\":\"live\"}]}");
    struct str o = {0};
    nodes_table(j, &o);
    has(&o, "x                        12345678aa live ");
    has(&o, "x                        12345678ab lost ");
    has(&o, "y                        123456780 stopped ");
    has(&o, "z                        fedcba   live ");
    str_deinit(&o);
    json_decref(j);
}

static void links_with_their_figures(void **state) {
    (void)state;
    json_t *j = state_json(STATE);
    struct str o = {0};
    nodes_links(j, &o);
    has(&o, "studio -> pi                       en0 ethernet 10 Gbit/s          180 us   2.45 ms   "
            "1.2 GB/s   9000  yes\n");
    has(&o, "pi -> studio                       not measured: a firewall\n");
    str_clear(&o);
    json_decref(j);
    j = state_json("{\"nodes\":[],\"links\":[]}");
    nodes_links(j, &o);
    assert_int_equal(o.n, 0);
    str_deinit(&o);
    json_decref(j);
}

/* A node of another version, or nonsense: no crash, no garbage. */
static void what_is_missing_is_a_dash(void **state) {
    (void)state;
    static const char *const TEXTS[] = {"{}", "[]", "{\"nodes\":[{}],\"links\":[{}]}",
                                        "{\"nodes\":[{\"gpus\":[7],\"shards\":[{}]}]}"};
    for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
        json_t *j = state_json(TEXTS[i]);
        struct str o = {0};
        nodes_table(j, &o);
        nodes_links(j, &o);
        has(&o, "NODE ");
        str_deinit(&o);
        json_decref(j);
    }
}

#define KUECHE "K\xc3\xbc" /* K and a u with dots: two columns in three bytes */
#define JI_QI  "\xe6\x9c\xba\xe5\x99\xa8" /* two Chinese characters: four columns */

static void names_of_any_script_keep_the_columns(void **state) {
    (void)state;
    json_t *j = state_json("{\"nodes\":[{\"id\":\"aaaaaaaaaaaa\",\"name\":\"" KUECHE "che\","
                           "\"state\":\"self\",\"is_master\":true},{\"id\":\"bbbbbbbbbbbb\","
                           "\"name\":\"" JI_QI JI_QI JI_QI JI_QI JI_QI JI_QI "\","
                           "\"state\":\"lost\"}]}");
    struct str o = {0};
    nodes_table(j, &o);
    has(&o, KUECHE "che*                   aaaaaa   live ");
    has(&o, JI_QI JI_QI JI_QI JI_QI JI_QI "\xe6\x9c\xba   bbbbbb   lost ");
    str_deinit(&o);
    json_decref(j);
}

/* 24 columns of an ancient script are 96 bytes. */
static void names_in_links_are_cut_between_characters(void **state) {
    (void)state;
    struct str text = {0}, name = {0}, o = {0};
    for (u32 i = 0; i < 24; i++) str_addz(&name, "\xf0\x90\x8e\xa0");
    str_addf(&text,
             "{\"nodes\":[{\"id\":\"a\",\"name\":\"%s%s\"}],"
             "\"links\":[{\"from\":\"a\",\"to\":\"a\"}]}",
             str_z(&name), str_z(&name));
    json_t *j = state_json(str_z(&text));
    nodes_links(j, &o);
    str_clear(&text);
    str_addf(&text, "%s -> %s ", str_z(&name), str_z(&name));
    has(&o, str_z(&text));
    assert_true(utf8_valid(str_z(&o), o.n));
    json_decref(j);
    str_deinit(&text);
    str_deinit(&name);
    str_deinit(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_with_their_hardware),
        cmocka_unit_test(names_of_any_script_keep_the_columns),
        cmocka_unit_test(names_in_links_are_cut_between_characters),
        cmocka_unit_test(ids_are_as_long_as_they_must_be),
        cmocka_unit_test(links_with_their_figures),
        cmocka_unit_test(what_is_missing_is_a_dash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
