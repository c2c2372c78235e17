#include "comm/ofi.h"

#ifndef HAVE_LIBFABRIC

static bool absent(struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "this build has no libfabric: install its development files (Debian: "
                   "libfabric-dev) and build again");
}

bool ofi_check(const char *provider, struct err *e) {
    (void)provider;
    return absent(e);
}
struct ofi *ofi_open(const char *provider, const char *near_host, u32 n_peers, u32 n_recv,
                     u32 n_send, struct err *e) {
    (void)provider, (void)near_host, (void)n_peers, (void)n_recv, (void)n_send;
    absent(e);
    return NULL;
}
void ofi_close(struct ofi *o) {
    (void)o;
}
const char *ofi_provider(const struct ofi *o) {
    (void)o;
    return "";
}
const void *ofi_address(const struct ofi *o, size_t *n) {
    *n = 0;
    return o;
}
bool ofi_add_peer(struct ofi *o, u32 i, const void *address, size_t n, struct err *e) {
    (void)o, (void)i, (void)address, (void)n;
    return absent(e);
}
u8 *ofi_send_buf(struct ofi *o) {
    (void)o;
    return NULL;
}
void ofi_drop_buf(struct ofi *o, u8 *buf) {
    (void)o, (void)buf;
}
int ofi_send(struct ofi *o, u32 peer, u8 *buf, size_t n, char why[OFI_WHY_CAP]) {
    (void)o, (void)peer, (void)buf, (void)n;
    why[0] = 0;
    return -1;
}
u32 ofi_n_sending(const struct ofi *o) {
    (void)o;
    return 0;
}
bool ofi_poll(struct ofi *o, struct ofi_event *ev) {
    (void)o, (void)ev;
    return false;
}
void ofi_repost(struct ofi *o, u8 *buf) {
    (void)o, (void)buf;
}
bool ofi_may_sleep(struct ofi *o, int *fd) {
    (void)o;
    *fd = -1;
    return true;
}

#else

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/noalloc.h"
#include "base/str.h"

/* Loaded when it is asked for, not linked: it brings libraries that catch signals when a program
 * starts, and a program built with it shall run where it is not installed. The rest of its calls
 * go through tables of the objects that these make. */
struct lib {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int errnum);
    uint32_t (*version)(void);
};

/* Of one message on its way, or one that may come. */
struct slot {
    struct fi_context2 ctx; /* first: the provider's, and how a completion is told apart */
    u8 *buf;
    u32 peer;
    bool recv, busy; /* busy: the provider has it */
    bool lent;       /* who is going to send it has it */
};

struct ofi {
    struct lib lib;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;
    void *desc;
    int wait_fd;
    u8 address[OFI_ADDRESS_BYTES];
    size_t address_n;
    fi_addr_t *peer; /* [n_peers] */
    u32 n_peers, n_recv, n_send, n_sending, n_idle;
    struct slot *slot; /* [n_recv + n_send] */
    u8 *mem;           /* [n_recv + n_send][OFI_MSG_BYTES] */
};

/* Its libraries and some providers catch signals; who ends this program, and how, is our own
 * business. */
static const int SIGNALS[] = {SIGTERM, SIGINT, SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE};
struct signals {
    struct sigaction v[ARRAY_LEN(SIGNALS)];
};

static void signals_keep(struct signals *s) {
    for (u32 i = 0; i < ARRAY_LEN(SIGNALS); i++) sigaction(SIGNALS[i], NULL, &s->v[i]);
}
static void signals_restore(const struct signals *s) {
    for (u32 i = 0; i < ARRAY_LEN(SIGNALS); i++) sigaction(SIGNALS[i], &s->v[i], NULL);
}

#ifdef __APPLE__
#define LIBRARY "libfabric.1.dylib"
#else
#define LIBRARY "libfabric.so.1"
#endif

/* Never unloaded: its libraries may have left threads. */
static bool load(struct lib *l, struct err *e) {
    /* Our memory is registered once: no cache of registrations, whose upkeep patches mmap. */
    setenv("FI_MR_CACHE_MONITOR", "disabled", 0);
    /* ofi_rxm, the layer over tcp and verbs, sends at once what fits its buffers, else 16 KiB. Of
     * what is larger it tells the other side, which then reads it. Both sides need the same. */
    char bytes[16];
    snprintf(bytes, sizeof bytes, "%d", OFI_MSG_BYTES);
    setenv("FI_OFI_RXM_BUFFER_SIZE", bytes, 0);
    void *so = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return err_set(e, ERR_UNSUPPORTED, "libfabric is not installed here (Debian: libfabric1)");
    const struct {
        const char *name;
        void *to;
    } calls[] = {{"fi_getinfo", &l->getinfo},   {"fi_freeinfo", &l->freeinfo},
                 {"fi_dupinfo", &l->dupinfo},   {"fi_fabric", &l->fabric},
                 {"fi_strerror", &l->strerror}, {"fi_version", &l->version}};
    for (u32 i = 0; i < ARRAY_LEN(calls); i++) {
        void *call = dlsym(so, calls[i].name);
        if (!call) return err_set(e, ERR_UNSUPPORTED, "libfabric has no %s", calls[i].name);
        memcpy(calls[i].to, &call, sizeof call);
    }
    u32 v = l->version(); /* its structs grow from version to version */
    if (v == FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION)) return true;
    return err_set(e, ERR_UNSUPPORTED,
                   "libfabric %u.%u is installed, and this was built with %u.%u: build it again",
                   FI_MAJOR(v), FI_MINOR(v), FI_MAJOR_VERSION, FI_MINOR_VERSION);
}

/* The system's own sockets and memory do as well without libfabric. */
static bool is_software(const char *provider) {
    static const char *const NAMES[] = {"tcp", "sockets", "udp", "shm", "sm2",
                                        "net", "ofi_",    "off", "lnx", "mrail"};
    for (u32 i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strncmp(provider, NAMES[i], strlen(NAMES[i])) == 0) return true;
    return false;
}

static struct fi_info *look(const struct lib *l, const char *provider, const char *near_host) {
    struct fi_info *hints = l->dupinfo(NULL), *found = NULL;
    if (!hints) abort(); /* as xcalloc does */
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    if (provider) hints->fabric_attr->prov_name = strdup(provider);
    if (near_host) hints->addr_format = strchr(near_host, ':') ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    if (l->getinfo(FI_VERSION(1, 14), near_host, NULL, near_host ? FI_SOURCE : 0, hints, &found))
        found = NULL;
    l->freeinfo(hints);
    return found;
}

/* A duplicate of the one to use, or NULL. */
static struct fi_info *choose(const struct lib *l, const char *provider, const char *near_host) {
    bool any = strcmp(provider, "auto") == 0;
    struct fi_info *all = any ? NULL : look(l, provider, near_host), *use;
    if (!all) all = look(l, any ? NULL : provider, NULL);
    for (use = all; use; use = use->next)
        if (use->ep_attr->max_msg_size >= OFI_MSG_BYTES &&
            !(any && is_software(use->fabric_attr->prov_name)))
            break;
    if (use) use = l->dupinfo(use);
    if (all) l->freeinfo(all);
    return use;
}

static bool has_none(const struct lib *l, const char *provider, struct err *e) {
    char names[200] = "";
    struct fi_info *all = look(l, NULL, NULL);
    for (struct fi_info *i = all; i; i = i->next) {
        char name[OFI_PROVIDER_CAP];
        str_copy(name, sizeof name, i->fabric_attr->prov_name);
        name[strcspn(name, ";")] = 0;
        size_t n = strlen(names);
        if (!strstr(names, name))
            snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", name);
    }
    if (all) l->freeinfo(all);
    if (strcmp(provider, "auto") == 0)
        return err_set(e, ERR_UNSUPPORTED, "libfabric finds no network of its own here, only %s",
                       *names ? names : "nothing");
    return err_set(e, ERR_UNSUPPORTED, "libfabric has no provider '%s' here; it has %s", provider,
                   *names ? names : "none");
}

bool ofi_check(const char *provider, struct err *e) {
    struct signals before;
    struct lib l;
    if (strcmp(provider, "auto") == 0) return true;
    signals_keep(&before);
    bool ok = load(&l, e);
    struct fi_info *info = ok ? choose(&l, provider, NULL) : NULL;
    if (ok && !info) ok = has_none(&l, provider, e);
    if (info) l.freeinfo(info);
    signals_restore(&before);
    return ok;
}

static bool failed(const struct ofi *o, struct err *e, const char *what, int code) {
    return err_set(e, ERR_IO, "libfabric: %s: %s", what, o->lib.strerror(code < 0 ? -code : code));
}

static bool post(struct ofi *o, struct slot *s) {
    u32 promise = noalloc_pause();
    ssize_t k = fi_recv(o->ep, s->buf, OFI_MSG_BYTES, o->desc, FI_ADDR_UNSPEC, &s->ctx);
    noalloc_resume(promise);
    s->busy = k == 0;
    return s->busy;
}

static bool open_cq(struct ofi *o, struct err *e) {
    struct fi_cq_attr attr = {
        .size = o->n_recv + o->n_send + 16, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    int code = fi_cq_open(o->domain, &attr, &o->cq, NULL);
    if (code == 0 && fi_control(&o->cq->fid, FI_GETWAIT, &o->wait_fd) != 0) o->wait_fd = -1;
    if (code == 0) return true;
    attr.wait_obj = FI_WAIT_NONE; /* shm and efa have nothing to wait for */
    code = fi_cq_open(o->domain, &attr, &o->cq, NULL);
    return code == 0 || failed(o, e, "completion queue", code);
}

static void close_fid(struct fid *f) {
    if (f) fi_close(f);
}

static int try_endpoint(struct ofi *o) {
    int code;
    if ((code = fi_endpoint(o->domain, o->info, &o->ep, NULL)) == 0 &&
        (code = fi_ep_bind(o->ep, &o->av->fid, 0)) == 0 &&
        (code = fi_ep_bind(o->ep, &o->cq->fid, FI_TRANSMIT | FI_RECV)) == 0)
        code = fi_enable(o->ep);
    if (code == 0) return 0;
    close_fid(o->ep ? &o->ep->fid : NULL);
    o->ep = NULL;
    return code;
}

/* The shm provider's name for an endpoint has this process's number and counts up; what a process
 * of that number has left when it was killed is in the way, and only the next name is free. */
static int make_endpoint(struct ofi *o) {
    enum { TRIES = 16 };
    int code = -FI_EBUSY;
    for (int i = 0; code == -FI_EBUSY && i < TRIES; i++) code = try_endpoint(o);
    return code;
}

static bool open_endpoint(struct ofi *o, struct err *e) {
    struct fi_av_attr av = {.type = o->info->domain_attr->av_type, .count = o->n_peers};
    int code;
    if ((code = o->lib.fabric(o->info->fabric_attr, &o->fabric, NULL)) != 0)
        return failed(o, e, "fabric", code);
    if ((code = fi_domain(o->fabric, o->info, &o->domain, NULL)) != 0)
        return failed(o, e, "domain", code);
    if ((code = fi_av_open(o->domain, &av, &o->av, NULL)) != 0)
        return failed(o, e, "address table", code);
    if (!open_cq(o, e)) return false;
    if ((code = make_endpoint(o)) != 0) return failed(o, e, "endpoint", code);
    o->address_n = sizeof o->address;
    code = fi_getname(&o->ep->fid, o->address, &o->address_n);
    return (code == 0 && o->address_n <= sizeof o->address) || failed(o, e, "own address", code);
}

static bool make_buffers(struct ofi *o, struct err *e) {
    u32 n = o->n_recv + o->n_send;
    size_t bytes = (size_t)n * OFI_MSG_BYTES;
    int code;
    o->mem = aligned_alloc(4096, bytes);
    if (!o->mem) return err_set(e, ERR_MEMORY, "no memory for %zu bytes of messages", bytes);
    memset(o->mem, 0, bytes);
    if ((o->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
        code = fi_mr_reg(o->domain, o->mem, bytes, FI_SEND | FI_RECV, 0, 1, 0, &o->mr, NULL);
        if (code != 0) return failed(o, e, "registering memory", code);
        o->desc = fi_mr_desc(o->mr);
    }
    o->slot = xcalloc(n, sizeof *o->slot);
    for (u32 i = 0; i < n; i++) {
        o->slot[i].buf = o->mem + (size_t)i * OFI_MSG_BYTES;
        o->slot[i].recv = i < o->n_recv;
        if (o->slot[i].recv && !post(o, &o->slot[i])) o->n_idle++;
    }
    return true;
}

struct ofi *ofi_open(const char *provider, const char *near_host, u32 n_peers, u32 n_recv,
                     u32 n_send, struct err *e) {
    struct signals before;
    signals_keep(&before);
    struct ofi *o = xcalloc(1, sizeof *o);
    *o = (struct ofi){.n_peers = n_peers, .n_recv = n_recv, .n_send = n_send, .wait_fd = -1};
    o->peer = xcalloc(n_peers, sizeof *o->peer);
    bool ok = load(&o->lib, e);
    if (ok) o->info = choose(&o->lib, provider, near_host);
    ok = ok && (o->info || has_none(&o->lib, provider, e)) && open_endpoint(o, e) &&
         make_buffers(o, e);
    signals_restore(&before);
    if (ok) return o;
    ofi_close(o);
    return NULL;
}

void ofi_close(struct ofi *o) {
    if (!o) return;
    close_fid(o->ep ? &o->ep->fid : NULL);
    close_fid(o->mr ? &o->mr->fid : NULL);
    close_fid(o->cq ? &o->cq->fid : NULL);
    close_fid(o->av ? &o->av->fid : NULL);
    close_fid(o->domain ? &o->domain->fid : NULL);
    close_fid(o->fabric ? &o->fabric->fid : NULL);
    if (o->info) o->lib.freeinfo(o->info);
    free(o->slot);
    free(o->mem);
    free(o->peer);
    free(o);
}

const char *ofi_provider(const struct ofi *o) {
    return o->info->fabric_attr->prov_name;
}

const void *ofi_address(const struct ofi *o, size_t *n) {
    *n = o->address_n;
    return o->address;
}

bool ofi_add_peer(struct ofi *o, u32 i, const void *address, size_t n, struct err *e) {
    u8 padded[OFI_ADDRESS_BYTES] = {0}; /* it has no length: the provider reads what it needs */
    ASSERT(i < o->n_peers);
    if (n != o->address_n && o->info->addr_format != FI_ADDR_STR)
        return err_set(e, ERR_FORMAT, "a libfabric address of %zu bytes where %zu are expected", n,
                       o->address_n);
    memcpy(padded, address, MIN(n, sizeof padded - 1));
    int k = fi_av_insert(o->av, padded, 1, &o->peer[i], 0, NULL);
    return k == 1 || failed(o, e, "an address is not taken", k < 0 ? k : FI_EINVAL);
}

u8 *ofi_send_buf(struct ofi *o) {
    for (u32 i = o->n_recv; i < o->n_recv + o->n_send; i++)
        if (!o->slot[i].busy && !o->slot[i].lent) {
            o->slot[i].lent = true;
            return o->slot[i].buf;
        }
    return NULL;
}

static struct slot *slot_of(struct ofi *o, const u8 *buf) {
    return &o->slot[(size_t)(buf - o->mem) / OFI_MSG_BYTES];
}

void ofi_drop_buf(struct ofi *o, u8 *buf) {
    struct slot *s = slot_of(o, buf);
    ASSERT(s->lent);
    s->lent = false;
}

int ofi_send(struct ofi *o, u32 peer, u8 *buf, size_t n, char why[OFI_WHY_CAP]) {
    struct slot *s = slot_of(o, buf);
    ASSERT(s->lent && !s->busy);
    u32 promise = noalloc_pause();
    ssize_t k = fi_send(o->ep, buf, n, o->desc, o->peer[peer], &s->ctx);
    noalloc_resume(promise);
    if (k == -FI_EAGAIN) return 0;
    s->lent = false;
    if (k != 0) {
        snprintf(why, OFI_WHY_CAP, "libfabric: %s", o->lib.strerror((int)-k));
        return -1;
    }
    s->peer = peer;
    s->busy = true;
    o->n_sending++;
    return 1;
}

u32 ofi_n_sending(const struct ofi *o) {
    return o->n_sending;
}

static void post_idle(struct ofi *o) {
    for (u32 i = 0; i < o->n_recv && o->n_idle; i++)
        if (!o->slot[i].busy && post(o, &o->slot[i])) o->n_idle--;
}

static bool on_error(struct ofi *o, struct ofi_event *ev) {
    struct fi_cq_err_entry err = {0};
    if (fi_cq_readerr(o->cq, &err, 0) != 1) return false;
    struct slot *s = err.op_context;
    *ev = (struct ofi_event){.kind = OFI_FAILED, .peer = UINT32_MAX};
    snprintf(ev->why, sizeof ev->why, "libfabric: %s", o->lib.strerror(err.err));
    if (!s) return true;
    s->busy = false;
    if (s->recv)
        o->n_idle++; /* a message that was cut, or a stranger's: it is posted again */
    else
        ev->peer = s->peer, o->n_sending--;
    return true;
}

bool ofi_poll(struct ofi *o, struct ofi_event *ev) {
    struct fi_cq_msg_entry entry;
    u32 promise = noalloc_pause();
    if (o->n_idle) post_idle(o);
    ssize_t k = fi_cq_read(o->cq, &entry, 1);
    bool happened = k == -FI_EAVAIL ? on_error(o, ev) : k == 1;
    noalloc_resume(promise);
    if (k != 1) return happened;
    struct slot *s = entry.op_context;
    ev->kind = s->recv ? OFI_RECEIVED : OFI_SENT;
    ev->buf = s->buf;
    ev->n = s->recv ? entry.len : 0;
    ev->peer = s->peer;
    s->busy = s->recv; /* its reader's, for now */
    if (!s->recv) o->n_sending--;
    return true;
}

void ofi_repost(struct ofi *o, u8 *buf) {
    if (!post(o, slot_of(o, buf))) o->n_idle++;
}

bool ofi_may_sleep(struct ofi *o, int *fd) {
    struct fid *f = &o->cq->fid;
    *fd = o->wait_fd;
    if (o->wait_fd < 0) return true;
    u32 promise = noalloc_pause();
    int code = fi_trywait(o->fabric, &f, 1);
    noalloc_resume(promise);
    return code == 0;
}

#endif
