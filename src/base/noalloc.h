/* noalloc.h - stretches of code in which nothing may be allocated: the steps of a model.
 *
 * A thread that is between begin and end promises not to allocate. Programs only count; a test that
 * includes base/test.h has its malloc replaced, and aborts where the promise is broken
 * (base/test_malloc.h). Pairs nest. Any thread; each has a count of its own, which the kernel pool
 * passes on to its workers. */
#pragma once

#include "base/base.h"

void noalloc_begin(void);
void noalloc_end(void);
bool noalloc_on(void);
/* For what grows to its largest size and is kept, such as a link's buffers: lifts the promise of
 * this thread, and takes it up again with what pause returned. */
u32 noalloc_pause(void);
void noalloc_resume(u32 paused);
