#include "include/CDesktop.h"
#include "libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct wd_vnc_api wd_vnc;
struct wd_png_api wd_png;
struct wd_xkb_api wd_xkb;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded[3];

static void *open_library(const char *name, char *why, size_t capacity) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, capacity, "%s", dlerror());
    }
    return library;
}

#define FIND(api, library, name)                                       \
    api.name = (__typeof__(api.name))dlsym(library, #name);            \
    if (api.name == NULL) {                                            \
        snprintf(why, capacity, "the library has no %s", #name);       \
        dlclose(library);                                              \
        return false;                                                  \
    }

static bool load_vnc(char *why, size_t capacity) {
    void *library = open_library("libvncclient.so.1", why, capacity);
    if (library == NULL) {
        return false;
    }
#define WD_FIND(name) FIND(wd_vnc, library, name)
    WD_VNC_FUNCTIONS(WD_FIND)
#undef WD_FIND
    // It writes to stderr otherwise.
    rfbBool *logging = (rfbBool *)dlsym(library, "rfbEnableClientLogging");
    if (logging != NULL) {
        *logging = FALSE;
    }
    return true;
}

static bool load_png(char *why, size_t capacity) {
    void *library = open_library("libpng16.so.16", why, capacity);
    if (library == NULL) {
        return false;
    }
#define WD_FIND(name) FIND(wd_png, library, name)
    WD_PNG_FUNCTIONS(WD_FIND)
#undef WD_FIND
    return true;
}

static bool load_xkb(char *why, size_t capacity) {
    void *library = open_library("libxkbcommon.so.0", why, capacity);
    if (library == NULL) {
        return false;
    }
#define WD_FIND(name) FIND(wd_xkb, library, name)
    WD_XKB_FUNCTIONS(WD_FIND)
#undef WD_FIND
    return true;
}

bool wd_load(enum wd_library library, char *why, size_t capacity) {
    if ((unsigned)library > WD_XKBCOMMON) {
        return false;
    }
    pthread_mutex_lock(&lock);
    if (!loaded[library]) {
        switch (library) {
        case WD_VNCCLIENT:
            loaded[library] = load_vnc(why, capacity);
            break;
        case WD_PNG:
            loaded[library] = load_png(why, capacity);
            break;
        case WD_XKBCOMMON:
            loaded[library] = load_xkb(why, capacity);
            break;
        }
    }
    bool result = loaded[library];
    pthread_mutex_unlock(&lock);
    return result;
}

uint32_t wd_keysym_from_name(const char *name, bool ignore_case) {
    return wd_xkb.xkb_keysym_from_name(
        name, ignore_case ? XKB_KEYSYM_CASE_INSENSITIVE : XKB_KEYSYM_NO_FLAGS);
}

uint32_t wd_keysym_to_scalar(uint32_t keysym) {
    return wd_xkb.xkb_keysym_to_utf32(keysym);
}

bool wd_keysym_name(uint32_t keysym, char *name, size_t capacity) {
    int length = wd_xkb.xkb_keysym_get_name(keysym, name, capacity);
    return length > 0 && (size_t)length < capacity;
}
