#include "base/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths_os.h"
#include "base/str.h"

bool paths_join(char *out, size_t cap, const char *dir, const char *name) {
    size_t n = strlen(dir);
    const char *slash = n && dir[n - 1] == '/' ? "" : "/";
    int k = snprintf(out, cap, "%s%s%s", dir, slash, name);
    return k >= 0 && (size_t)k < cap;
}

/* Where exo's variable is not EXO_ and our name. */
static const struct {
    const char *name, *of_exo;
} EXO_NAMES[] = {
    {"NAMESPACE", "EXO_LIBP2P_NAMESPACE"},
    {"NAMESPACE", "EXO_ZENOH_NAMESPACE"},
    {"PEERS", "EXO_BOOTSTRAP_PEERS"},
    {"MODELS_DIR", "EXO_DEFAULT_MODELS_DIR"},
    {"API_HOST", "EXO_HOST"},
    {"API_PORT", "EXO_PORT"},
    {"MEMORY", "OVERRIDE_MEMORY_MB"},
};

static const char *set_env(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

const char *paths_env(const char *name) {
    char full[128];
    static const char *const PREFIX[] = {"SKEIN_", "EXO_"};
    for (size_t i = 0; i < ARRAY_LEN(PREFIX); i++) {
        snprintf(full, sizeof full, "%s%s", PREFIX[i], name);
        const char *v = set_env(full);
        if (v) return v;
    }
    for (size_t i = 0; i < ARRAY_LEN(EXO_NAMES); i++) {
        const char *v = strcmp(name, EXO_NAMES[i].name) == 0 ? set_env(EXO_NAMES[i].of_exo) : NULL;
        if (v) return v;
    }
    return NULL;
}

/* $XDG_NAME/skein, or $HOME/<fallback>/skein; XDG says that relative values are to be ignored. */
static bool under(char *out, size_t cap, const char *xdg, const char *home, const char *fallback) {
    char base[1024];
    const char *v = xdg ? getenv(xdg) : NULL;
    if (v && v[0] == '/') {
        if (!str_copy(base, sizeof base, v)) return false;
    } else if (!paths_join(base, sizeof base, home, fallback)) {
        return false;
    }
    return paths_join(out, cap, base, "skein");
}

bool paths_init(struct paths *p, const char *home, struct err *e) {
    memset(p, 0, sizeof *p);
    const char *one = home ? home : getenv("SKEIN_HOME"), *h = getenv("HOME");
    char under_home[1024];
    const char *exo = one && *one ? NULL : set_env("EXO_HOME"); /* a name in the home folder */
    if (exo && exo[0] == '/') one = exo;
    if (exo && exo[0] != '/' && h && *h && paths_join(under_home, sizeof under_home, h, exo))
        one = under_home;
    bool ok;
    if (one && *one) {
        ok = paths_join(p->models, sizeof p->models, one, "models") &&
             str_copy(p->config, sizeof p->config, one) &&
             str_copy(p->state, sizeof p->state, one) && str_copy(p->log, sizeof p->log, one);
    } else {
        if (!h || !*h)
            return err_set(e, ERR_ARG,
                           "HOME is not set: set it, or SKEIN_HOME to a folder for skein's files");
        char data[1024];
        ok = under(p->config, sizeof p->config, PATHS_XDG_CONFIG, h, PATHS_CONFIG) &&
             under(data, sizeof data, PATHS_XDG_DATA, h, PATHS_DATA) &&
             paths_join(p->models, sizeof p->models, data, "models") &&
             under(p->state, sizeof p->state, PATHS_XDG_STATE, h, PATHS_STATE) &&
             under(p->log, sizeof p->log, PATHS_XDG_STATE, h, PATHS_LOG);
    }
    const char *models = paths_env("MODELS_DIR");
    if (ok && models) ok = str_copy(p->models, sizeof p->models, models);
    return ok || err_set(e, ERR_ARG,
                         "the folder for skein's files has too long a name (over 1,000 bytes)");
}
