#include "include/CSSH2.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static struct ssh2_api api;
static unsigned char *(*sha256)(const unsigned char *, size_t, unsigned char *);
static void (*note_disconnect)(void *, const char *, int);
static bool (*note_end)(void *, int);
static bool (*send_all)(void *, int, const void *, size_t);

const struct ssh2_api *ssh2_load(char *why, size_t capacity) {
    void *library = dlopen("libssh2.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, capacity, "%s", dlerror());
        return NULL;
    }
#define SSH2_FIND(name)                                      \
    api.name = (__typeof__(api.name))dlsym(library, #name);  \
    if (api.name == NULL) {                                  \
        snprintf(why, capacity, "libssh2 has no %s", #name); \
        return NULL;                                         \
    }
    SSH2_FUNCTIONS(SSH2_FIND)
#undef SSH2_FIND
    if (api.libssh2_init(0) != 0) {
        snprintf(why, capacity, "libssh2 cannot be initialized");
        return NULL;
    }
    // Found in the libraries that this one needs, too.
    sha256 = (__typeof__(sha256))dlsym(library, "SHA256");
    return &api;
}

bool ssh2_sha256(const uint8_t *bytes, size_t count, uint8_t digest[32]) {
    return sha256 != NULL && sha256(bytes, count, digest) != NULL;
}

static void disconnected(LIBSSH2_SESSION *session, int reason, const char *message, int message_len,
                         const char *language, int language_len, void **abstract) {
    note_disconnect(*abstract, message, message_len);
}

// Once it is told of the end, libssh2 keeps what it has received before to itself. So it is not told.
static ssize_t received(libssh2_socket_t socket, void *buffer, size_t length, int flags, void **abstract) {
    ssize_t count = recv(socket, buffer, length, flags);
    if (count > 0) return count;
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return -EAGAIN;
    int failure = errno;
    if (note_end(*abstract, socket)) return -EAGAIN;
    // That of the user's agent.
    return count < 0 ? -failure : 0;
}

// Once a packet is sent in part, libssh2 fails to send any other, such as one that lets the server go on. So it is told
// that all is sent.
static ssize_t sent(libssh2_socket_t socket, const void *buffer, size_t length, int flags, void **abstract) {
    if (send_all(*abstract, socket, buffer, length)) return (ssize_t)length;
    ssize_t count = send(socket, buffer, length, flags | MSG_NOSIGNAL);
    return count < 0 ? -errno : count;
}

void ssh2_set_callbacks(LIBSSH2_SESSION *session, void *context, void (*disconnect)(void *, const char *, int),
                        bool (*end)(void *, int), bool (*send)(void *, int, const void *, size_t)) {
    note_disconnect = disconnect;
    note_end = end;
    send_all = send;
    *api.libssh2_session_abstract(session) = context;
    api.libssh2_session_callback_set(session, LIBSSH2_CALLBACK_DISCONNECT, (void *)disconnected);
    api.libssh2_session_callback_set(session, LIBSSH2_CALLBACK_RECV, (void *)received);
    api.libssh2_session_callback_set(session, LIBSSH2_CALLBACK_SEND, (void *)sent);
}
