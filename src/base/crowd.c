#include "base/crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

enum { PLACES = 64, EXPIRES_MS = 10000 };

/* Shared by all processes. busy_until: clock_ms, the same for all of a machine; 0 between steps. A
 * hint: nothing else is ordered by it. */
struct place {
    atomic_uint pid; /* 0: free; taken by compare-and-swap */
    atomic_ullong busy_until;
};
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "the table is shared between processes");

struct crowd {
    struct place *table; /* [PLACES] */
    struct place *mine;
};

static struct place *map_table(const char *path) {
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return NULL;
    void *p = MAP_FAILED;
    const size_t bytes = PLACES * sizeof(struct place);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        ((size_t)st.st_size >= bytes || ftruncate(fd, (off_t)bytes) == 0))
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

/* A free place, or that of a process that is no more. */
static struct place *take_place(struct place *table) {
    u32 me = (u32)getpid();
    for (u32 i = 0; i < PLACES; i++) {
        u32 was = atomic_load(&table[i].pid);
        if (was && (kill((pid_t)was, 0) == 0 || errno != ESRCH)) continue;
        if (!atomic_compare_exchange_strong(&table[i].pid, &was, me)) continue;
        atomic_store(&table[i].busy_until, 0);
        return &table[i];
    }
    return NULL;
}

struct crowd *crowd_join(const char *path) {
    char own[64];
    struct place *table = NULL;
    if (path) {
        table = map_table(path);
    } else {
        snprintf(own, sizeof own, "/dev/shm/skein-%u.cores", (unsigned)geteuid());
        table = map_table(own);
        snprintf(own, sizeof own, "/tmp/skein-%u.cores", (unsigned)geteuid());
        if (!table) table = map_table(own);
    }
    if (!table) return NULL;
    struct place *mine = take_place(table);
    if (!mine) {
        munmap(table, PLACES * sizeof *table);
        return NULL;
    }
    struct crowd *c = xcalloc(1, sizeof *c);
    *c = (struct crowd){table, mine};
    return c;
}

void crowd_free(struct crowd *c) {
    if (!c) return;
    atomic_store(&c->mine->busy_until, 0);
    atomic_store(&c->mine->pid, 0);
    munmap(c->table, PLACES * sizeof *c->table);
    free(c);
}

u32 crowd_enter(struct crowd *c, u64 now_ms) {
    u32 n = 0;
    if (!c) return 1;
    atomic_store(&c->mine->busy_until, now_ms + EXPIRES_MS);
    for (u32 i = 0; i < PLACES; i++)
        n += atomic_load(&c->table[i].pid) && atomic_load(&c->table[i].busy_until) > now_ms;
    return MAX(n, 1u);
}

void crowd_leave(struct crowd *c) {
    if (c) atomic_store(&c->mine->busy_until, 0);
}
