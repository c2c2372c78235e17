/* netif_os.h - the part of netif.c that differs between systems; for netif.c and its test alone. */
#pragma once

#include "base/netif.h"

/* Fills kind, speed_mbit and, where it can, mtu of an interface whose name and flags are known. */
void netif_os_facts(struct netif *v, u32 n);
/* The same from a folder with the shape of Linux's /sys/class; elsewhere it does nothing. */
void netif_os_facts_in(const char *sys_class, struct netif *v, u32 n);
