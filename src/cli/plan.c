/* skein plan: asks a node what placement would do; or, with a file of machines, works it out here,
 * without any node. */
#include <stdio.h>
#include <string.h>

#include "api/place_request.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/inventory.h"
#include "cli/machines.h"
#include "cli/place_opts.h"
#include "cli/plan_table.h"
#include "node/child.h"
#include "node/plan_json.h"

enum { DESCRIBE_MS = 30000, CTX_DEFAULT = 8192 };

static const char TEXT[] = "Shows each way to place a model over the nodes of a running cluster: "
                           "who gets what, whether it\n"
                           "fits, and the predicted rates, from memory bandwidth, products and "
                           "links as they were measured,\n"
                           "and bytes, operations and messages of the model's forward pass.\n"
                           "--add tells what one more machine would bring; --nodes-file plans for "
                           "machines in a file like\n"
                           "that of `skein cluster init`, without a running node.\n"
                           "\n"
                           "Examples:\n"
                           "  skein plan smollm2\n"
                           "  skein plan llama-3.3-70b --goal throughput --batch 16 --ctx 8192\n"
                           "  skein plan llama-3.3-70b --add m3-ultra --add box=256:400:10:50\n"
                           "  skein plan model.gguf --nodes-file inventory.yaml";

/* What is in the model's file, by a runner. Texts live in a. */
static bool describe(const char *path, u32 kv_type, struct arena *a, struct msg_described *d,
                     struct err *e) {
    struct child *c = child_spawn(NULL, "runner that looks into the model", e);
    struct frame f;
    int got = 0;
    if (!c) return false;
    child_send(c, MSG_DESCRIBE, &(struct msg_describe){.path = path, .kv_type = kv_type});
    while ((got = child_wait(c, DESCRIBE_MS, -1, &f, e)) == 1 && f.type != MSG_DESCRIBED &&
           f.type != MSG_FAILED) {
    }
    bool ok =
        got == 1 && f.type == MSG_DESCRIBED && wire_decode(msg_table(f.type), f.body, f.n, a, d, e);
    struct msg_failed why;
    if (got == 0) err_set(e, ERR_IO, "%s could not be read in time", path);
    if (got == 1 && f.type == MSG_FAILED && wire_decode(msg_table(f.type), f.body, f.n, a, &why, e))
        err_set(e, MIN(why.code, (u32)ERR_N - 1), "%s", why.text);
    child_close(c, 500);
    return ok;
}

struct machines {
    u32 n;
    struct place_node *nodes;
    struct place_link *links;
    const char **ids;
};

static bool listed(const struct wire_list *l, const char *name) {
    const struct msg_string *v = l->v;
    for (u64 i = 0; i < l->n; i++)
        if (strcmp(v[i].s, name) == 0) return true;
    return false;
}

/* Names of --nodes and --exclude must be in the file. */
static bool all_listed(const struct wire_list *l, const struct inventory *inv, const char *path,
                       struct err *e) {
    const struct msg_string *v = l->v;
    for (u64 i = 0; i < l->n; i++) {
        u32 k = 0;
        while (k < inv->n && strcmp(inv->v[k].name, v[i].s) != 0) k++;
        if (k == inv->n) return err_set(e, ERR_ARG, "%s lists no machine %s", path, v[i].s);
    }
    return true;
}

/* The listed machines; what is not said of them is an error, for nobody can measure them here. */
static bool read_machines(const char *path, const struct msg_wish *wish, struct arena *a,
                          struct machines *m, struct err *e) {
    struct inventory inv = {0};
    bool ok = cli_inventory(path, a, &inv, e) && all_listed(&wish->nodes, &inv, path, e) &&
              all_listed(&wish->exclude, &inv, path, e);
    m->nodes = arena_array(a, inv.n + 1, sizeof *m->nodes);
    m->ids = arena_array(a, inv.n + 1, sizeof *m->ids);
    m->links = arena_array(a, (size_t)inv.n * inv.n + 1, sizeof *m->links);
    for (u32 i = 0; ok && i < inv.n; i++) {
        const struct inventory_node *v = &inv.v[i];
        struct node_extra x =
            machine_of(v->name, (double)v->memory_bytes, (double)v->bandwidth_bytes_s);
        if (v->is_coordinator || listed(&wish->exclude, v->name)) continue;
        if (wish->nodes.n && !listed(&wish->nodes, v->name)) continue;
        if (!v->memory_bytes || !v->bandwidth_bytes_s)
            ok = err_set(e, ERR_ARG, "%s, line %u: a plan needs memory and bandwidth of %s", path,
                         v->line, v->name);
        m->ids[m->n] = v->name;
        m->nodes[m->n] = (struct place_node){.name = v->name,
                                             .budget_bytes = x.memory_bytes,
                                             .read_bytes_s = x.read_bytes_s,
                                             .ops_s = x.ops_s,
                                             .machine = m->n};
        m->n++;
    }
    for (u32 i = 0; i < m->n * m->n; i++) m->links[i] = (struct place_link){150e-6, 1.15e8};
    inventory_deinit(&inv);
    return ok;
}

/* Machines of --add as the plan takes them. */
struct extras {
    struct node_extra v[OPT_LIST_MAX];
    char name[OPT_LIST_MAX][MACHINE_NAME_CAP];
    u32 n;
};

/* The options as the API would take them; its rules hold here too. */
static bool read_wish(const struct place_opts *o, const char *model, struct place_request *q,
                      struct err *e) {
    struct fault f;
    struct str text = {0};
    json_t *body = place_opts_body(o, model);
    json_dump(body, &text);
    bool ok = place_request_parse(q, str_view(&text), &f);
    if (!ok) *e = f.e;
    str_deinit(&text);
    json_decref(body);
    return ok;
}

static struct plan ask_of(const struct machines *m, const struct msg_wanted *w) {
    u32 batch = w->wish.n_batch ? w->wish.n_batch : w->wish.goal == GOAL_THROUGHPUT ? 8 : 1;
    return (struct plan){.ids = m->ids,
                         .q = {.model = &w->desc,
                               .nodes = m->nodes,
                               .n_nodes = MIN(m->n, (u32)PLAN_RANKS_MAX),
                               .links = m->links,
                               .sharding = w->wish.sharding,
                               .goal = w->wish.goal,
                               .min_nodes = w->min_nodes,
                               .n_batch = batch,
                               .n_prompt = 1024,
                               .scratch_bytes = (u64)64 << 20,
                               .balance = PLAN_BALANCE,
                               .force = w->wish.force}};
}

static json_t *plan_machines(struct plan *s, const struct msg_wanted *w, const struct extras *x,
                             struct err *e) {
    struct place_node more[OPT_LIST_MAX];
    struct place_link link[OPT_LIST_MAX];
    struct str text = {0};
    for (u32 i = 0; i < x->n; i++) {
        more[i] = (struct place_node){.name = x->v[i].name,
                                      .budget_bytes = x->v[i].memory_bytes,
                                      .read_bytes_s = x->v[i].read_bytes_s,
                                      .ops_s = x->v[i].ops_s};
        link[i] = (struct place_link){x->v[i].delay_s, x->v[i].link_bytes_s};
    }
    plan_json(s, w, more, link, x->n, &text);
    json_t *out = json_parse(str_view(&text), e);
    str_deinit(&text);
    return out;
}

static json_t *plan_here(const char *model, const char *file, const struct place_opts *o,
                         const struct extras *x, struct err *e) {
    struct arena a = {0};
    struct machines m = {0};
    struct msg_described d;
    struct place_request q;
    char path[CLI_PATH_MAX];
    json_t *out = NULL;
    if (read_wish(o, model, &q, e) && cli_model_path(model, path, e) &&
        describe(path, q.p.kv_type ? q.p.kv_type - 1 : 0, &a, &d, e) &&
        read_machines(file, &q.p.wish, &a, &m, e)) {
        struct msg_wanted w = {.model = model,
                               .n_ctx = o->n_ctx,
                               .min_nodes = o->min_nodes,
                               .wish = q.p.wish,
                               .desc = msg_model_of(&d)};
        struct plan s = ask_of(&m, &w);
        u32 most = d.n_ctx_train ? d.n_ctx_train : CTX_DEFAULT;
        if (plan_set_ctx(&s, &w, MIN(o->n_ctx ? o->n_ctx : (u32)CTX_DEFAULT, most), e))
            out = plan_machines(&s, &w, x, e);
    }
    place_request_deinit(&q);
    arena_deinit(&a);
    return out;
}

static json_t *plan_there(const struct daemon *d, const char *model, const struct place_opts *o,
                          const struct extras *x, struct err *e) {
    struct str path = {0}, query = {0};
    char name[CLI_PATH_MAX];
    if (!cli_node_model(model, name, e)) return NULL;
    place_opts_query(o, name, &query);
    for (u32 i = 0; i < x->n; i++) {
        const struct node_extra *m = &x->v[i];
        char text[256];
        snprintf(text, sizeof text, "%s,%llu,%.0f,%.0f,%.3f,%.0f", m->name,
                 (unsigned long long)m->memory_bytes, m->read_bytes_s, m->ops_s, m->delay_s * 1e6,
                 m->link_bytes_s);
        place_opts_param(&query, "add", text);
    }
    str_addf(&path, "/instance/plan%s", str_z(&query));
    json_t *out = daemon_call(d, str_z(&path), NULL, e);
    str_deinit(&path);
    str_deinit(&query);
    return out;
}

int cmd_plan(int argc, char **argv) {
    struct daemon d = daemon_default();
    struct place_opts o = {.min_nodes = 0};
    struct opt_list add = {.n = 0};
    const char *file = NULL;
    bool json = false;
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        PLACE_OPTS(&o),
        {"add", OPT_LIST, &add,
         "what would this machine bring? a kind, or NAME=GIB:GB_S[:GBIT[:US]]", .value = "MACHINE"},
        {"nodes-file", OPT_STR, &file, "plan for these machines, without a running node",
         .value = "FILE"},
        {"json", OPT_FLAG, &json, .help = "as JSON"},
    };
    const struct opts_cmd cmd = {
        "plan", "MODEL", "show where a model could go, and how fast it would be",
        TEXT,   opts,    ARRAY_LEN(opts),
        1,      1};
    int n, code;
    struct err e = {0};
    static struct extras x;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    for (; x.n < add.n; x.n++)
        if (!machine_parse(add.v[x.n], &x.v[x.n], x.name[x.n], &e)) return opts_fail(&e);
    json_t *plan =
        file ? plan_here(argv[0], file, &o, &x, &e) : plan_there(&d, argv[0], &o, &x, &e);
    struct str out = {0};
    if (plan && json) {
        json_dump(plan, &out);
        str_addc(&out, '\n');
    } else if (plan) {
        plan_table(plan, &out);
    }
    fputs(str_z(&out), stdout);
    json_decref(plan);
    str_deinit(&out);
    return plan ? EXIT_OK : opts_fail(&e);
}
