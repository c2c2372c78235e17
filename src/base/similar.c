#include "base/similar.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { LEN_MAX = 96 }; /* longer words are never near */

static bool same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Optimal string alignment distance: Levenshtein's with swapped neighbours as one mistake. */
static u32 distance(const char *a, size_t na, const char *b, size_t nb) {
    u32 rows[3][LEN_MAX + 1];
    u32 *before = rows[0], *last = rows[1], *row = rows[2];
    for (u32 j = 0; j <= nb; j++) last[j] = j;
    for (u32 i = 1; i <= na; i++) {
        row[0] = i;
        for (u32 j = 1; j <= nb; j++) {
            row[j] = MIN(MIN(last[j], row[j - 1]) + 1, last[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = MIN(row[j], before[j - 2] + 1);
        }
        u32 *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[nb];
}

struct similar similar_to(const char *asked) {
    return (struct similar){.asked = asked, .distance = (u32)strlen(asked) / 3 + 2};
}

void similar_offer(struct similar *s, const char *word) {
    size_t na = strlen(s->asked), nb = strlen(word);
    if (!na || na > LEN_MAX || nb > LEN_MAX) return;
    u32 d = distance(s->asked, na, word, nb);
    if (na >= 3 && strncasecmp(s->asked, word, na) == 0) d = MIN(d, 1);
    if (d < s->distance) {
        s->distance = d;
        s->best = word;
    }
}
