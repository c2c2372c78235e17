/* linkbench.h - a sum of 16 KiB between two processes against the bare transport under it. */
#pragma once

/* Prints one line a transport. Returns an exit status. */
int linkbench(void);
