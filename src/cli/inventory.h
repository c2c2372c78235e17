/* inventory.h - the file in which people list their machines, for networks without multicast. Pure.
 *
 *   namespace: home              # or cluster: home; may be missing
 *   nodes:                       # or devices, machines, hosts
 *     - host: studio-1           # or name, hostname
 *       address: 192.168.1.20    # or ip, addresses: [...]; HOST or HOST:PORT; default: the host
 *       chip: M3 Ultra           # or cpu
 *       gpu_cores: 80
 *       memory: 512 GB           # or memory_gb: 512, ram
 *       bandwidth: 819 GB/s      # of memory; or bandwidth_gbps: 819
 *       role: worker             # or coordinator
 *
 * A mapping from hosts to their fields does as well as a list. Other fields are kept out with a
 * remark, since such files are often shared with other tools. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum { INVENTORY_NODES_MAX = 1024, INVENTORY_ADDRESSES_MAX = 8 };

struct inventory_node {
    const char *name, *chip;
    const char *addresses[INVENTORY_ADDRESSES_MAX]; /* "HOST" or "HOST:PORT" */
    u32 n_addresses;
    u64 gpu_cores, memory_bytes, bandwidth_bytes_s; /* 0: not said */
    bool is_coordinator;
    u32 line;
};

struct inventory {
    const char *name_space; /* NULL: not said */
    struct inventory_node *v;
    u32 n;
    struct str remarks; /* a line for each field that means nothing here */
};

/* Texts live in `mem`. ERR_FORMAT and ERR_LIMIT name the line. */
bool inventory_parse(struct view text, struct arena *mem, struct inventory *out, struct err *e);
void inventory_deinit(struct inventory *inv);

/* "512 GB", "64GiB", "0.5 TB", "524288 MB", a bare number of `unit` bytes. Decimal units count as
 * binary ones when memory says GB: 512 GB of RAM are 512 GiB. False when it is no such text. */
bool inventory_size(const char *text, u64 unit, bool binary, u64 *out);
/* Is the listed memory what the machine reports? Firmware and graphics take some of it. */
bool inventory_memory_fits(u64 listed, u64 reported);
/* Do these words of the listed chip occur in the reported one ("M3 Ultra" in "Apple M3 Ultra")? */
bool inventory_chip_fits(const char *listed, const char *reported);
/* Same machine's name: without domain, in any case. */
bool inventory_same_host(const char *a, const char *b);
