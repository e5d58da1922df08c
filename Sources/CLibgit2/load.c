#include "include/CLibgit2.h"

#include <dlfcn.h>
#include <stdio.h>

static struct wg_api api;

const struct wg_api *wg_load(size_t mapped_limit, char *why, size_t capacity) {
    void *library = dlopen("libgit2.so." LIBGIT2_SOVERSION, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, capacity, "%s", dlerror());
        return NULL;
    }
#define WG_FIND(name)                                        \
    api.name = (__typeof__(api.name))dlsym(library, #name);  \
    if (api.name == NULL) {                                  \
        snprintf(why, capacity, "libgit2 has no %s", #name); \
        return NULL;                                         \
    }
    WG_FUNCTIONS(WG_FIND)
#undef WG_FIND
    // Variadic, which Swift cannot call.
    __typeof__(&git_libgit2_opts) options =
        (__typeof__(&git_libgit2_opts))dlsym(library, "git_libgit2_opts");
    if (options == NULL || api.git_libgit2_init() < 0) {
        snprintf(why, capacity, "libgit2 cannot be initialized");
        return NULL;
    }
    options(GIT_OPT_SET_OWNER_VALIDATION, 0);
    options(GIT_OPT_SET_MWINDOW_MAPPED_LIMIT, mapped_limit);
    return &api;
}
