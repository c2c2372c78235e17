/* discovery_txt.h - what a node says of itself in the TXT record of its DNS-SD service. Pure.
 *
 * RFC 6763 section 6: strings of at most 255 bytes, each after its length, "key=value", keys in any
 * case, the first of a key counts, unknown keys are skipped. Ours:
 *   txtvers=1  id=32 hex digits  ns=namespace  v=version  bus=port  api=port (0: none)  boot=16 hex
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { DISCOVERY_TXT_MAX = 1300 };

struct discovery_info {
    char node_id[65], name_space[128], version[64];
    u16 bus_port, api_port;
    u64 boot; /* new at every start of the node */
};

/* False and *e (ERR_FORMAT: cut short, bad id, no bus port, text that is not UTF-8 or has control
 * characters; ERR_LIMIT). What other programs announce under the same service type fails here. */
bool discovery_txt_parse(const void *txt, size_t n, struct discovery_info *out, struct err *e);
/* Appends the strings with their lengths; longer texts than fit are cut. */
void discovery_txt_write(const struct discovery_info *info, struct str *out);
