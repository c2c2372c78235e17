#include "api/place_request.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"

void place_request_deinit(struct place_request *r) {
    arena_deinit(&r->mem);
    *r = (struct place_request){.p = {.model = NULL}};
}

/* One of the words, in any case; its number goes to *out. */
static bool word(const char *key, const char *s, const char *const *words, u32 n, u32 *out,
                 struct fault *f) {
    struct str all = {0};
    for (u32 i = 0; i < n; i++) {
        if (s && strcasecmp(s, words[i]) == 0) {
            *out = i;
            str_deinit(&all);
            return true;
        }
        str_addf(&all, "%s\"%s\"", i ? ", " : "", words[i]);
    }
    fault_set(f, ERR_ARG, key, "%s must be one of %s", key, str_z(&all));
    str_deinit(&all);
    return false;
}

static bool set_word(struct node_place *p, const char *key, const char *s, struct fault *f) {
    static const char *const SHARDING[] = {"Auto", "Pipeline", "Tensor", "Hybrid"};
    static const char *const GOAL[] = {"latency", "throughput", "ttft"};
    static const char *const META[] = {"MlxRing"};
    static const char *const KV[] = {"f16", "q8"};
    u32 x = 0;
    if (strcmp(key, "sharding") == 0) return word(key, s, SHARDING, 4, &p->wish.sharding, f);
    if (strcmp(key, "goal") == 0) return word(key, s, GOAL, 3, &p->wish.goal, f);
    if (strcmp(key, "instance_meta") == 0) {
        if (s && strcmp(s, "MlxJaccl") == 0)
            return fault_unsupported(f, key,
                                     "instance_meta MlxJaccl is exo's name for RDMA between Macs: "
                                     "ask for \"MlxRing\", ranks find the fastest way themselves");
        return word(key, s, META, 1, &x, f);
    }
    if (!word(key, s, KV, 2, &x, f)) return false;
    p->kv_type = x + 1;
    return true;
}

static bool set_number(struct place_request *r, const char *key, double n, struct fault *f) {
    struct node_place *p = &r->p;
    const struct {
        const char *key;
        u32 *at, most;
    } FIELDS[] = {{"min_nodes", &p->min_nodes, 1024},
                  {"n_ctx", &p->n_ctx, INT32_MAX},
                  {"batch", &p->wish.n_batch, 1024},
                  {"replicas", &r->replicas, PLACE_REQUEST_REPLICAS_MAX}};
    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) {
        if (strcmp(key, FIELDS[i].key) != 0) continue;
        if (!(n >= 1 && n <= FIELDS[i].most && n == floor(n)))
            return fault_set(f, ERR_ARG, key, "%s must be a whole number from 1 to %u", key,
                             FIELDS[i].most);
        *FIELDS[i].at = (u32)n;
        return true;
    }
    if (strcmp(key, "activations") != 0)
        return fault_unsupported(f, key, "%.60s is not a parameter of a placement", key);
    p->act_bits = n == 8 ? 8 : 16;
    return n == 8 || n == 16 ||
           fault_set(f, ERR_ARG, key,
                     "activations must be 16 or 8 (bits, beside quantized weights)");
}

static bool add_name(struct place_request *r, const char *key, struct wire_list *l, const char *s,
                     struct fault *f) {
    struct msg_string *v = l->v;
    if (!s || !*s) return fault_set(f, ERR_ARG, key, "%s must hold names or ids of nodes", key);
    if (!v) l->v = v = arena_array(&r->mem, PLACE_REQUEST_LIST_MAX, sizeof *v);
    if (l->n == PLACE_REQUEST_LIST_MAX)
        return fault_set(f, ERR_LIMIT, key, "%s: at most %d nodes", key,
                         (int)PLACE_REQUEST_LIST_MAX);
    v[l->n++].s = arena_strdup(&r->mem, s);
    return true;
}

bool place_request_layers(struct arena *a, const char *text, struct wire_list *ranks,
                          struct err *e) {
    struct msg_rank *v = arena_array(a, PLACE_REQUEST_RANKS_MAX, sizeof *v);
    u32 n = 0;
    for (const char *at = text; *at; n++) {
        size_t len = strcspn(at, ",");
        char *one = arena_memdup(a, at, len + 1), *eq, *dash, *end;
        one[len] = 0;
        at += len + (at[len] == ',');
        if (n == PLACE_REQUEST_RANKS_MAX)
            return err_set(e, ERR_LIMIT, "layers: at most %d nodes", (int)PLACE_REQUEST_RANKS_MAX);
        eq = strrchr(one, '=');
        if (!eq || eq == one || !isdigit((unsigned char)eq[1]))
            return err_set(e, ERR_ARG, "layers: \"%.60s\" is not NODE=FIRST-LAST", one);
        *eq = 0;
        unsigned long first = strtoul(eq + 1, &dash, 10), last = first;
        end = dash;
        if (*dash == '-' && isdigit((unsigned char)dash[1])) last = strtoul(dash + 1, &end, 10);
        if (*end || last < first || last > 100000)
            return err_set(e, ERR_ARG, "layers: \"%.60s\" of %.60s is not FIRST-LAST", eq + 1, one);
        v[n] =
            (struct msg_rank){.node = one, .layer_first = (u32)first, .layer_end = (u32)last + 1};
    }
    *ranks = (struct wire_list){v, n};
    return n > 0 || err_set(e, ERR_ARG, "layers: at least one NODE=FIRST-LAST");
}

static bool is_one_of(const char *key, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, list[i]) == 0) return true;
    return false;
}

static const char *const WORDS[] = {"sharding", "goal", "instance_meta", "kv_type"};

/* A field whose value is text. *known is false when it is none of these. */
static bool set_text(struct place_request *r, const char *key, const char *s, bool *known,
                     struct fault *f) {
    struct node_place *p = &r->p;
    *known = true;
    if (strcmp(key, "model_id") == 0 || strcmp(key, "model") == 0) {
        if (!s || !*s) return fault_set(f, ERR_ARG, key, "%s must be the name of a model", key);
        p->model = arena_strdup(&r->mem, s);
        return true;
    }
    if (is_one_of(key, WORDS, ARRAY_LEN(WORDS))) return set_word(p, key, s, f);
    if (strcmp(key, "layers") == 0) {
        struct err e = {0};
        if (s && place_request_layers(&r->mem, s, &p->wish.ranks, &e)) return true;
        return fault_set(f, ERR_ARG, key, "%s",
                         s ? e.msg : "layers must be text: NODE=FIRST-LAST,..");
    }
    *known = false;
    return true;
}

static struct wire_list *list_of(struct node_place *p, const char *key) {
    return strcmp(key, "exclude") == 0                                 ? &p->wish.exclude
           : strcmp(key, "nodes") == 0 || strcmp(key, "node_ids") == 0 ? &p->wish.nodes
                                                                       : NULL;
}

bool place_request_field(struct place_request *r, const char *key, const json_t *v,
                         struct fault *f) {
    bool known;
    struct wire_list *l = list_of(&r->p, key);
    if (!set_text(r, key, json_string_value(v), &known, f)) return false;
    if (known) return true;
    if (strcmp(key, "force") == 0) {
        r->p.wish.force = json_is_true(v);
        return json_is_boolean(v) || fault_set(f, ERR_ARG, key, "force must be true or false");
    }
    if (l) {
        size_t i;
        json_t *x;
        if (!json_is_array(v)) return fault_set(f, ERR_ARG, key, "%s must be a list", key);
        if (l == &r->p.wish.nodes && !json_array_size(v))
            return fault_set(f, ERR_ARG, key, "%s is empty: leave it out to use any node", key);
        json_array_foreach(v, i, x) if (!add_name(r, key, l, json_string_value(x), f)) return false;
        return true;
    }
    return set_number(r, key, json_is_integer(v) ? (double)json_integer_value(v) : -1, f);
}

static json_t *parse_object(struct view body, struct fault *f) {
    json_t *root = json_parse(body, &f->e);
    if (!root || json_is_object(root)) return root;
    fault_set(f, ERR_ARG, NULL, "the body must be a JSON object");
    json_decref(root);
    return NULL;
}

static bool has_model(const struct place_request *r, struct fault *f) {
    return r->p.model || fault_set(f, ERR_ARG, "model_id", "the placement names no model");
}

bool place_request_parse(struct place_request *r, struct view body, struct fault *f) {
    *r = (struct place_request){.p = {.model = NULL}};
    *f = (struct fault){0};
    json_t *root = parse_object(body, f), *v;
    bool ok = root != NULL;
    const char *key;
    if (ok)
        json_object_foreach(root, key, v) if (ok && !json_is_null(v)) ok =
            place_request_field(r, key, v, f);
    json_decref(root);
    return ok && has_model(r, f);
}

/* NAME,MEMORY_BYTES,READ_BYTES_S,OPS_S,DELAY_US,LINK_BYTES_S */
static bool add_extra(struct place_request *r, const char *s, struct fault *f) {
    struct node_place *p = &r->p;
    struct node_extra *v = (struct node_extra *)(uintptr_t)p->extra;
    size_t name_n = strcspn(s, ",");
    double x[5];
    const char *at = s + name_n;
    for (int i = 0; i < 5; i++) {
        char *end;
        x[i] = *at == ',' ? strtod(at + 1, &end) : -1;
        if (!(x[i] >= 0 && x[i] < 1e18) || end == at + 1)
            return fault_set(
                f, ERR_ARG, "add",
                "add must be NAME,MEMORY_BYTES,READ_BYTES_S,OPS_S,DELAY_US,LINK_BYTES_S");
        at = end;
    }
    if (!name_n || *at || x[1] <= 0 || x[2] <= 0 || x[4] <= 0 || !utf8_valid(s, name_n))
        return fault_set(f, ERR_ARG, "add", "add: a machine needs a name, and rates above 0");
    if (!v) p->extra = v = arena_array(&r->mem, PLACE_REQUEST_EXTRA_MAX, sizeof *v);
    if (p->n_extra == PLACE_REQUEST_EXTRA_MAX)
        return fault_set(f, ERR_LIMIT, "add", "add: at most %d machines",
                         (int)PLACE_REQUEST_EXTRA_MAX);
    v[p->n_extra++] = (struct node_extra){.name = arena_printf(&r->mem, "%.*s", (int)name_n, s),
                                          .memory_bytes = (u64)x[0],
                                          .read_bytes_s = x[1],
                                          .ops_s = x[2],
                                          .delay_s = x[3] / 1e6,
                                          .link_bytes_s = x[4]};
    return true;
}

static bool parameter(struct place_request *r, const char *key, const char *s, struct fault *f) {
    bool known;
    char *end;
    struct wire_list *l = list_of(&r->p, key);
    if (!set_text(r, key, s, &known, f)) return false;
    if (known) return true;
    if (l) return add_name(r, key, l, s, f);
    if (strcmp(key, "add") == 0) return add_extra(r, s, f);
    if (strcmp(key, "replicas") == 0 && strcmp(s, "1") != 0)
        return fault_unsupported(f, key,
                                 "what is shown is one instance: leave it out here (GET "
                                 "/instance/plan tells what copies bring even so), POST "
                                 "/place_instance makes them");
    if (strcmp(key, "force") == 0) {
        r->p.wish.force = !*s || strcmp(s, "true") == 0 || strcmp(s, "1") == 0;
        return r->p.wish.force || strcmp(s, "false") == 0 || strcmp(s, "0") == 0 ||
               fault_set(f, ERR_ARG, key, "force must be true or false");
    }
    double n = strtod(s, &end);
    return set_number(r, key, *s && !*end ? n : -1, f);
}

bool place_request_query(struct place_request *r, const struct http_req *q, struct fault *f) {
    *r = (struct place_request){.p = {.model = NULL}};
    *f = (struct fault){0};
    for (size_t i = 0; i < q->n_query; i++)
        if (!parameter(r, q->query[i].name, q->query[i].value, f)) return false;
    return has_model(r, f);
}
