/* setup.c - the data folder: one process owns it, and it remembers who this node is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/paths.h"
#include "base/random.h"
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

/* 16 random bytes, made at the first start: the node is the same one after a restart. */
static bool take_id(struct node *n, struct err *e) {
    char path[1024];
    u8 raw[16];
    struct str text = {0};
    if (!in_folder(n, "node_id", path, e)) return false;
    if (file_exists(path)) {
        bool ok = file_read(path, 4096, &text, e);
        if (ok) {
            while (text.n && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == ' '))
                text.p[--text.n] = 0;
            ok = hex_decode(str_z(&text), raw, sizeof raw) ||
                 err_set(e, ERR_FORMAT,
                         "%s does not hold 32 hex digits: delete it to become a new node", path);
        }
        str_deinit(&text);
        if (!ok) return false;
    } else {
        random_bytes(raw, sizeof raw);
        char line[NODE_ID_CAP + 1];
        hex_encode(raw, sizeof raw, line);
        str_addf(&text, "%s\n", line);
        bool ok = file_write(path, text.p, text.n, 0644, e);
        str_deinit(&text);
        if (!ok) return false;
    }
    hex_encode(raw, sizeof raw, n->id);
    return true;
}

bool setup_open(struct node *n, struct err *e) {
    return file_make_dirs(n->cfg.data_dir, e) && take_lock(n, e) && take_id(n, e);
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
        in_folder(n, "cluster", path, &e) && file_write(path, str_z(&bytes), bytes.n, 0644, &e);
    if (!ok && !n->save_failed) log_error("node", "state not saved, the node goes on: %s", e.msg);
    if (ok && n->save_failed) log_info("node", "state saved again");
    n->save_failed = !ok;
    str_deinit(&bytes);
}
