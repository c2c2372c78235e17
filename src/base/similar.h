/* similar.h - "did you mean": the word nearest to one that was not understood.
 *
 *     struct similar s = similar_to(asked);
 *     for (...) similar_offer(&s, words[i]);
 *     if (s.best) ... "did you mean %s?"
 *
 * Near is a few letters wrong, missing, added or swapped, in any case, or a beginning of the word.
 * Pure. */
#pragma once

#include "base/base.h"

struct similar {
    const char *asked, *best; /* borrowed; best NULL: nothing is near */
    u32 distance;             /* of best; before that one more than is still near */
};

struct similar similar_to(const char *asked);
void similar_offer(struct similar *s, const char *word);
