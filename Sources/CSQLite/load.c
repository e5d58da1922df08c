#include "include/CSQLite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Filled once, by sq_load(), and never changed afterwards.
static struct sq_api api;
static const struct sq_api *loaded;

static void *open_library(struct sq_api *found, char *why, size_t capacity) {
    void *library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, capacity, "%s", dlerror());
        return NULL;
    }
#define SQ_FIND(name)                                             \
    found->name = (__typeof__(found->name))dlsym(library, #name); \
    if (found->name == NULL) {                                    \
        snprintf(why, capacity, "libsqlite3 has no %s", #name);   \
        dlclose(library);                                         \
        return NULL;                                              \
    }
    SQ_FUNCTIONS(SQ_FIND)
#undef SQ_FIND
    return library;
}

const struct sq_api *sq_load(char *why, size_t capacity) {
    pthread_mutex_lock(&lock);
    if (loaded == NULL && open_library(&api, why, capacity) != NULL) loaded = &api;
    const struct sq_api *result = loaded;
    pthread_mutex_unlock(&lock);
    return result;
}

bool sq_is_usable(char *why, size_t capacity) {
    struct sq_api found;
    void *library = open_library(&found, why, capacity);
    if (library == NULL) return false;
    dlclose(library);
    return true;
}

const char *sq_text(int result) {
    pthread_mutex_lock(&lock);
    const struct sq_api *functions = loaded;
    pthread_mutex_unlock(&lock);
    return functions == NULL ? NULL : functions->sqlite3_errstr(result);
}
