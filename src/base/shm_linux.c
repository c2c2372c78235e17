#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/shm.h"

bool shm_host_id(char out[SHM_HOST_CAP]) {
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f) return false;
    bool ok = fgets(out, SHM_HOST_CAP, f) != NULL;
    fclose(f);
    if (ok) out[strcspn(out, "\n")] = 0;
    return ok && *out;
}

static void *map(int fd, size_t n_bytes, struct err *e) {
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) return p;
    err_errno(e, ERR_MEMORY, "shared memory of %zu bytes", n_bytes);
    return NULL;
}

void *shm_make(size_t n_bytes, char name[SHM_NAME_CAP], struct err *e) {
    u64 id;
    random_bytes(&id, sizeof id);
    snprintf(name, SHM_NAME_CAP, "/skein-%016llx", (unsigned long long)id);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        err_errno(e, ERR_IO, "shared memory %s", name);
        return NULL;
    }
    /* Containers have a small /dev/shm; a page that it can't hold kills whoever touches it. */
    int why = posix_fallocate(fd, 0, (off_t)n_bytes);
    if (why) errno = why, err_errno(e, ERR_MEMORY, "shared memory of %zu bytes", n_bytes);
    void *p = why ? NULL : map(fd, n_bytes, e);
    close(fd);
    if (!p) shm_unlink(name);
    return p;
}

void *shm_attach(const char *name, size_t n_bytes, struct err *e) {
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
    struct stat st;
    if (fd < 0) {
        err_errno(e, ERR_NOT_FOUND, "shared memory %s", name);
        return NULL;
    }
    shm_unlink(name);
    void *p = NULL;
    if (fstat(fd, &st) != 0 || (u64)st.st_size != n_bytes || st.st_uid != geteuid())
        err_set(e, ERR_FORMAT, "shared memory %s is not what it was said to be", name);
    else
        p = map(fd, n_bytes, e);
    close(fd);
    return p;
}
