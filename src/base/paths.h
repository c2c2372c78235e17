/* paths.h - where skein keeps its files. XDG on Linux, ~/Library on macOS; SKEIN_HOME puts all of
 * them into one folder. Read once at start; no thread rules. Nothing is created here. */
#pragma once

#include "base/err.h"

struct paths {
    char config[1024]; /* inventory, own catalogue entries   ~/.config/skein                */
    char models[1024]; /* model files                        ~/.local/share/skein/models    */
    char state[1024];  /* node id, wanted instances, lock    ~/.local/state/skein           */
    char log[1024]; /* log files' folder                  ~/.local/state/skein, ~/Library/Logs/skein
                     */
};

/* home overrides SKEIN_HOME when not NULL (--data-dir). ERR_ARG when a path is too long or HOME is
 * unset. */
bool paths_init(struct paths *p, const char *home, struct err *e);
/* Absolute path of the running program, for starting children and finding the catalogue. */
bool paths_self(char *out, size_t cap, struct err *e);
/* Joins with one slash; false when it does not fit. */
bool paths_join(char *out, size_t cap, const char *dir, const char *name);
/* SKEIN_<name> or, where it is unset or empty, EXO_<name>, or what exo calls it when that is
 * another name; NULL when none is set. */
const char *paths_env(const char *name);
