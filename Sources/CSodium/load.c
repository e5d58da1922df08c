#define _GNU_SOURCE
#include "include/CSodium.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define WSD_FUNCTIONS(X) \
    X(sodium_init) \
    X(sodium_memcmp) \
    X(crypto_scalarmult) \
    X(crypto_scalarmult_base) \
    X(crypto_aead_chacha20poly1305_ietf_encrypt) \
    X(crypto_aead_chacha20poly1305_ietf_decrypt) \
    X(crypto_aead_xchacha20poly1305_ietf_encrypt) \
    X(crypto_aead_xchacha20poly1305_ietf_decrypt) \
    X(crypto_box_beforenm) \
    X(crypto_box_easy_afternm) \
    X(crypto_box_open_easy_afternm)

static struct {
#define WSD_MEMBER(name) __typeof__(&name) name;
    WSD_FUNCTIONS(WSD_MEMBER)
#undef WSD_MEMBER
} api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
// Both written within pthread_once, and never again.
static bool is_loaded;
static char problem[256];

static void load(void) {
    void *library = dlopen("libsodium.so.23", RTLD_NOW | RTLD_LOCAL);
    // The next version of its interface has all of these functions, too.
    if (library == NULL) library = dlopen("libsodium.so.26", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(problem, sizeof(problem), "%s", dlerror());
        return;
    }
#define WSD_FIND(name)                                                     \
    api.name = (__typeof__(api.name))dlsym(library, #name);                \
    if (api.name == NULL) {                                                \
        snprintf(problem, sizeof(problem), "libsodium has no %s", #name);  \
        dlclose(library);                                                  \
        return;                                                            \
    }
    WSD_FUNCTIONS(WSD_FIND)
#undef WSD_FIND
    if (api.sodium_init() < 0) {
        snprintf(problem, sizeof(problem), "libsodium cannot be started");
        return;
    }
    is_loaded = true;
}

static bool loaded(void) {
    pthread_once(&once, load);
    return is_loaded;
}

bool wsd_load(char *why, size_t capacity) {
    if (loaded()) return true;
    snprintf(why, capacity, "%s", problem);
    return false;
}

void wsd_wipe(void *memory, size_t count) { explicit_bzero(memory, count); }

bool wsd_equal(const void *a, const void *b, size_t count) { return loaded() && api.sodium_memcmp(a, b, count) == 0; }

int wsd_public_key(void *public_key, const void *private_key) {
    return loaded() ? api.crypto_scalarmult_base(public_key, private_key) : -1;
}

int wsd_shared_secret(void *secret, const void *private_key, const void *public_key) {
    return loaded() ? api.crypto_scalarmult(secret, private_key, public_key) : -1;
}

int wsd_seal(void *output, const void *input, size_t count, const void *aad, size_t aad_count, const void *nonce,
             const void *key) {
    if (!loaded()) return -1;
    return api.crypto_aead_chacha20poly1305_ietf_encrypt(output, NULL, input, count, aad, aad_count, NULL, nonce, key);
}

int wsd_open(void *output, const void *input, size_t count, const void *aad, size_t aad_count, const void *nonce,
             const void *key) {
    if (!loaded()) return -1;
    return api.crypto_aead_chacha20poly1305_ietf_decrypt(output, NULL, NULL, input, count, aad, aad_count, nonce, key);
}

int wsd_xseal(void *output, const void *input, size_t count, const void *aad, size_t aad_count, const void *nonce,
              const void *key) {
    if (!loaded()) return -1;
    return api.crypto_aead_xchacha20poly1305_ietf_encrypt(output, NULL, input, count, aad, aad_count, NULL, nonce,
                                                          key);
}

int wsd_xopen(void *output, const void *input, size_t count, const void *aad, size_t aad_count, const void *nonce,
              const void *key) {
    if (!loaded()) return -1;
    return api.crypto_aead_xchacha20poly1305_ietf_decrypt(output, NULL, NULL, input, count, aad, aad_count, nonce,
                                                          key);
}

int wsd_box_key(void *key, const void *public_key, const void *private_key) {
    return loaded() ? api.crypto_box_beforenm(key, public_key, private_key) : -1;
}

int wsd_box_seal(void *output, const void *input, size_t count, const void *nonce, const void *key) {
    return loaded() ? api.crypto_box_easy_afternm(output, input, count, nonce, key) : -1;
}

int wsd_box_open(void *output, const void *input, size_t count, const void *nonce, const void *key) {
    return loaded() ? api.crypto_box_open_easy_afternm(output, input, count, nonce, key) : -1;
}
