#include "base/noalloc.h"

static _Thread_local u32 depth;

void noalloc_begin(void) {
    depth++;
}
void noalloc_end(void) {
    ASSERT(depth > 0);
    depth--;
}
bool noalloc_on(void) {
    return depth > 0;
}
u32 noalloc_pause(void) {
    u32 was = depth;
    depth = 0;
    return was;
}
void noalloc_resume(u32 paused) {
    ASSERT(depth == 0);
    depth = paused;
}
