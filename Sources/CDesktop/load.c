#include "include/CDesktop.h"
#include "libraries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct wd_vnc_api wd_vnc;
struct wd_png_api wd_png;
struct wd_xkb_api wd_xkb;
struct wd_zlib_api wd_zlib;
struct wd_xcb_api wd_xcb;

// A function's name and where its address goes.
struct function {
    const char *name;
    void **address;
};

#define FIND_VNC(name) {#name, (void **)&wd_vnc.name},
#define FIND_PNG(name) {#name, (void **)&wd_png.name},
#define FIND_XKB(name) {#name, (void **)&wd_xkb.name},
#define FIND_ZLIB(name) {#name, (void **)&wd_zlib.name},
#define FIND_XCB(name) {#name, (void **)&wd_xcb.name},
static const struct function vnc_functions[] = {WD_VNC_FUNCTIONS(FIND_VNC){NULL, NULL}};
static const struct function png_functions[] = {WD_PNG_FUNCTIONS(FIND_PNG){NULL, NULL}};
static const struct function xkb_functions[] = {WD_XKB_FUNCTIONS(FIND_XKB){NULL, NULL}};
static const struct function zlib_functions[] = {WD_ZLIB_FUNCTIONS(FIND_ZLIB){NULL, NULL}};
static const struct function xcb_functions[] = {WD_XCB_FUNCTIONS(FIND_XCB){NULL, NULL}};

static const struct {
    const char *file;
    const struct function *functions;
} libraries[] = {
    [WD_VNCCLIENT] = {"libvncclient.so.1", vnc_functions},
    [WD_PNG] = {"libpng16.so.16", png_functions},
    [WD_XKBCOMMON] = {"libxkbcommon.so.0", xkb_functions},
    [WD_ZLIB] = {"libz.so.1", zlib_functions},
    [WD_XCB] = {"libxcb.so.1", xcb_functions},
};
enum { LIBRARIES = sizeof libraries / sizeof libraries[0] };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded[LIBRARIES];

static bool load(enum wd_library number, char *why, size_t capacity) {
    void *library = dlopen(libraries[number].file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, capacity, "%s", dlerror());
        return false;
    }
    for (const struct function *function = libraries[number].functions; function->name != NULL; function++) {
        *function->address = dlsym(library, function->name);
        if (*function->address == NULL) {
            snprintf(why, capacity, "the library has no %s", function->name);
            dlclose(library);
            return false;
        }
    }
    if (number == WD_VNCCLIENT) {
        // It writes to stderr otherwise.
        rfbBool *logging = (rfbBool *)dlsym(library, "rfbEnableClientLogging");
        if (logging != NULL) {
            *logging = FALSE;
        }
    }
    return true;
}

bool wd_load(enum wd_library library, char *why, size_t capacity) {
    if ((unsigned)library >= LIBRARIES) {
        return false;
    }
    pthread_mutex_lock(&lock);
    loaded[library] = loaded[library] || load(library, why, capacity);
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
