/* linkem_line.h - one direction of an emulated link: which frame arrives when, and which is lost.
 *
 * No I/O and no clock in here: the caller says what time it is and carries frames. A line owns the
 * frames that are under way on it. Frames leave in the order in which they are due; without
 * reordering that is the order in which they came, as on a wire, jitter or not. */
#pragma once

#include "base/err.h"

enum {
    LINE_HEADER_MAX = 10,                     /* virtio_net_hdr in front of the frame */
    LINE_FRAME_MAX = LINE_HEADER_MAX + 65600, /* a segmentation offload's super-frame */
    LINE_FRAMES_MAX = 32768,                  /* under way at once */
};

struct line_cfg {
    u64 delay_ns, jitter_ns;  /* each frame takes delay +- jitter, evenly spread */
    double loss_pct, dup_pct; /* of frames */
    double reorder_pct;       /* these are late by reorder_ns more, others overtake them */
    u64 reorder_ns;           /* 0: the delay, at least 1 ms */
    u64 rate_bytes_s;         /* of Ethernet frames; 0: no limit */
    u64 queue_bytes;          /* what may wait for the rate; 0: 50 ms of it, at least 256 KiB */
    u32 mtu;                  /* drop what is longer than that without its Ethernet header; 0: no */
    bool carrier;             /* false: the cable is out */
};

struct line_stats {
    u64 frames, bytes; /* that arrived, super-frames counted as what they are split into */
    u64 lost, duplicated, reordered, over_mtu, over_queue;
    u64 late_ns_max, late_ns_sum; /* of writing behind the due time */
};

struct line_frame {
    u64 due_ns, seq;
    u32 n, cap;
    u8 bytes[];
};

struct line {
    struct line_cfg cfg;
    struct line_stats stats;
    u64 seed, n_drawn, next_seq;
    u64 free_ns;              /* when the wire has sent what was accepted so far */
    u64 last_due_ns;          /* of frames in order */
    struct line_frame **heap; /* [n], by (due_ns, seq) */
    u32 n;
    struct line_frame *unused[2]; /* small and large ones, linked through `seq` */
};

void line_init(struct line *l, u64 seed);
void line_deinit(struct line *l);

/* Sets fields from words such as "delay=200us jitter=10ms loss=5 reorder=1 dup=0.1 rate=125M
 * queue=1M mtu=1500 carrier=0 reorder-by=5ms"; "reset" clears all. Times without a unit are
 * microseconds; K, M, G are powers of 1000. On failure nothing is changed: ERR_ARG names the word.
 */
bool line_set(struct line_cfg *cfg, const char *words, struct err *e);
/* The same words back, for people. */
void line_text(const struct line_cfg *cfg, char *out, size_t cap);
/* Loss and the like are of frames as they are on the wire, so super-frames must not be taken. */
bool line_wants_single_frames(const struct line_cfg *cfg);

/* A frame comes in: the bytes after `header` (a virtio_net_hdr) are Ethernet. They are copied. */
void line_accept(struct line *l, const u8 *frame, u32 n, u64 now_ns);
/* When the next frame is due; UINT64_MAX: none is under way. */
u64 line_next_ns(const struct line *l);
/* The next frame if it is due, to be given back by line_release; else NULL. */
struct line_frame *line_take(struct line *l, u64 now_ns);
void line_release(struct line *l, struct line_frame *f);
