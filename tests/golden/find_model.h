/* find_model.h - where tests of real models look for them: SKEIN_TEST_MODELS, then where `skein
 * pull` puts them. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/paths.h"

static inline bool find_model(const char *file, char *path, size_t cap) {
    const char *dirs[] = {getenv("SKEIN_TEST_MODELS"), NULL};
    struct paths p;
    if (paths_init(&p, NULL, NULL)) dirs[1] = p.models;
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (dirs[i] && paths_join(path, cap, dirs[i], file) && file_exists(path)) return true;
    printf("%s: not there, skipped\n", file);
    return false;
}
