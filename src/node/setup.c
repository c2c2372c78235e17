/* setup.c - the data folder: one process owns it, and it remembers who this node is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/paths.h"
#include "base/sysinfo.h"
#include "node/node_parts.h"

enum { STATE_MAX_BYTES = 16 << 20 };

static bool in_folder(const struct node *n, const char *name, char out[1024], struct err *e) {
    return paths_join(out, 1024, n->cfg.data_dir, name) ||
           err_set(e, ERR_ARG, "the data folder's path is too long: %s", n->cfg.data_dir);
}

static bool take_lock(struct node *n, struct err *e) {
    char path[1024], pid[24] = "";
    if (!in_folder(n, "lock", path, e)) return false;
    n->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (n->lock_fd < 0) return err_errno(e, ERR_IO, "can't open %s", path);
    if (flock(n->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return err_errno(e, ERR_IO, "can't lock %s", path);
        ssize_t k = read(n->lock_fd, pid, sizeof pid - 1);
        pid[k > 0 ? strcspn(pid, "\n") : 0] = 0;
        return err_set(
            e, ERR_BUSY,
            "another skein (process %s) uses the data folder %s: stop it, or give this one "
            "its own with --data-dir",
            *pid ? pid : "unknown", n->cfg.data_dir);
    }
    int k = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    if (ftruncate(n->lock_fd, 0) != 0 || pwrite(n->lock_fd, pid, (size_t)k, 0) != k)
        return err_errno(e, ERR_IO, "can't write %s", path);
    return true;
}

/* The machine's mark as it stands in the key file: hashed, since the system's own is nobody's
 * business. */
static void machine_mark(const struct node *n, char out[65]) {
    char id[128], text[160];
    u8 digest[32];
    sysinfo_machine(id, sizeof id);
    const char *machine = n->cfg.machine ? n->cfg.machine : id;
    out[0] = 0;
    if (!*machine) return;
    snprintf(text, sizeof text, "skein machine %s", machine);
    sha256_of(text, strlen(text), digest);
    hex_encode(digest, sizeof digest, out);
}

static bool write_key(struct node *n, const char *path, struct err *e) {
    struct identity_file f;
    struct str text = {0};
    memcpy(f.seed, n->identity.seed, sizeof f.seed);
    machine_mark(n, f.machine);
    identity_file_write(&f, &text);
    bool ok = file_write(path, text.p, text.n, 0600, e);
    memset(text.p, 0, text.n);
    str_deinit(&text);
    return ok;
}

static bool read_key(struct node *n, const char *path, struct err *e) {
    struct identity_file f;
    struct str text = {0};
    struct stat st;
    char machine[65];
    bool ok = file_read(path, 4096, &text, e) &&
              (identity_file_parse(str_view(&text), &f, e) ||
               err_wrap(e, "%s is damaged (delete it to become a new node)", path)) &&
              identity_of_seed(&n->identity, f.seed, e);
    str_deinit(&text);
    if (!ok) return false;
    machine_mark(n, machine);
    n->moved = *f.machine && *machine && strcmp(f.machine, machine) != 0;
    if (n->moved) log_info("node", "key made on another machine: this disk was moved or copied");
    if (stat(path, &st) == 0 && (st.st_mode & 077)) {
        log_warn("node", "key readable by others file=%s: now by its owner alone", path);
        if (chmod(path, 0600) != 0) log_warn("node", "chmod failed: %s", strerror(errno));
    }
    return true;
}

/* Data folders of earlier versions hold an id of random digits, which no key belongs to. */
static void forget_old_id(struct node *n) {
    char path[1024];
    struct str old = {0};
    if (!in_folder(n, "node_id", path, NULL) || !file_exists(path)) return;
    if (file_read(path, 4096, &old, NULL)) {
        log_info("node", "id changed from=%.32s to=%s: ids are made of a key now", str_z(&old),
                 n->id);
        unlink(path);
    }
    str_deinit(&old);
}

/* A key pair, made at the first start: the node is the same one after a restart, and can prove it.
 */
static bool take_key(struct node *n, struct err *e) {
    char path[1024];
    if (!in_folder(n, "node_key", path, e)) return false;
    bool ok = file_exists(path) ? read_key(n, path, e)
                                : identity_make(&n->identity, e) && write_key(n, path, e);
    if (!ok) return false;
    str_copy(n->id, sizeof n->id, n->identity.id);
    forget_old_id(n);
    return true;
}

bool setup_new_key(struct node *n, struct err *e) {
    char path[1024];
    struct identity old = n->identity;
    if (in_folder(n, "node_key", path, e) && identity_make(&n->identity, e) &&
        write_key(n, path, e))
        return true;
    n->identity = old;
    return false;
}

bool setup_open(struct node *n, struct err *e) {
    return file_make_dirs(n->cfg.data_dir, e) && take_lock(n, e) && take_key(n, e);
}

void setup_close(struct node *n) {
    if (n->lock_fd >= 0) close(n->lock_fd); /* gives the lock back */
    n->lock_fd = -1;
}

void setup_read_state(struct node *n, struct str *out) {
    char path[1024];
    struct err e = {0};
    if (!in_folder(n, "cluster", path, &e) || !file_exists(path)) return;
    if (!file_read(path, STATE_MAX_BYTES, out, &e)) {
        log_error("node", "state unreadable: %s", e.msg);
        str_clear(out);
    }
}

void setup_put_aside(struct node *n, const struct err *why) {
    char path[1024], aside[1024];
    if (!in_folder(n, "cluster", path, NULL) || !in_folder(n, "cluster.bad", aside, NULL)) return;
    log_error("node", "state damaged file=%s kept_as=%s: %s", path, aside, why->msg);
    if (rename(path, aside) != 0) log_error("node", "rename failed: %s", strerror(errno));
}

void setup_write_state(struct node *n) {
    char path[1024];
    struct err e = {0};
    struct str bytes = {0};
    cluster_save(n->cluster, &bytes);
    bool ok =
        in_folder(n, "cluster", path, &e) && file_write(path, str_z(&bytes), bytes.n, 0600, &e);
    if (!ok && !n->save_failed) log_error("node", "state not saved, the node goes on: %s", e.msg);
    if (ok && n->save_failed) log_info("node", "state saved again");
    n->save_failed = !ok;
    str_deinit(&bytes);
}
