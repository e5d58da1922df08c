#include "include/CZlib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define WZ_FUNCTIONS(X) \
    X(deflateInit2_) \
    X(deflate) \
    X(deflateEnd) \
    X(inflateInit2_) \
    X(inflate) \
    X(inflateReset) \
    X(inflateEnd)

struct wz_api {
#define WZ_MEMBER(name) __typeof__(&name) name;
    WZ_FUNCTIONS(WZ_MEMBER)
#undef WZ_MEMBER
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Filled once, by wz_load(), and never changed afterwards.
static struct wz_api api;
static bool loaded;

static void *open_library(struct wz_api *found, char *why, size_t capacity) {
    void *library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, capacity, "%s", dlerror());
        return NULL;
    }
#define WZ_FIND(name)                                             \
    found->name = (__typeof__(found->name))dlsym(library, #name); \
    if (found->name == NULL) {                                    \
        snprintf(why, capacity, "zlib has no %s", #name);         \
        dlclose(library);                                         \
        return NULL;                                              \
    }
    WZ_FUNCTIONS(WZ_FIND)
#undef WZ_FIND
    return library;
}

bool wz_load(char *why, size_t capacity) {
    pthread_mutex_lock(&lock);
    loaded = loaded || open_library(&api, why, capacity) != NULL;
    bool result = loaded;
    pthread_mutex_unlock(&lock);
    return result;
}

bool wz_is_usable(char *why, size_t capacity) {
    struct wz_api found;
    void *library = open_library(&found, why, capacity);
    if (library == NULL) return false;
    dlclose(library);
    return true;
}

// 15 is the largest window, and 16 asks for gzip's header and trailer.
int wz_deflate_init(z_stream *stream, int level) {
    return api.deflateInit2_(
        stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION, (int)sizeof(z_stream)
    );
}
int wz_deflate(z_stream *stream, int flush) { return api.deflate(stream, flush); }
int wz_deflate_end(z_stream *stream) { return api.deflateEnd(stream); }

int wz_inflate_init(z_stream *stream) {
    return api.inflateInit2_(stream, 15 + 16, ZLIB_VERSION, (int)sizeof(z_stream));
}
int wz_inflate(z_stream *stream, int flush) { return api.inflate(stream, flush); }
int wz_inflate_reset(z_stream *stream) { return api.inflateReset(stream); }
int wz_inflate_end(z_stream *stream) { return api.inflateEnd(stream); }
