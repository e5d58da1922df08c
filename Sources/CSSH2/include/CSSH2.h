// libssh2, loaded at run time: only a git command that finds no ssh on this machine pays for it. Types and constants
// come from libssh2-1-dev; each function is called through a pointer of the same type.
#ifndef WORKSPACE_AGENT_CSSH2_H
#define WORKSPACE_AGENT_CSSH2_H

#include <libssh2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SSH2_FUNCTIONS(X) \
    X(libssh2_init) \
    X(libssh2_version) \
    X(libssh2_free) \
    X(libssh2_session_init_ex) \
    X(libssh2_session_abstract) \
    X(libssh2_session_callback_set) \
    X(libssh2_session_set_blocking) \
    X(libssh2_session_method_pref) \
    X(libssh2_session_handshake) \
    X(libssh2_session_last_error) \
    X(libssh2_session_banner_get) \
    X(libssh2_session_hostkey) \
    X(libssh2_session_disconnect_ex) \
    X(libssh2_session_free) \
    X(libssh2_knownhost_init) \
    X(libssh2_knownhost_add) \
    X(libssh2_knownhost_check) \
    X(libssh2_knownhost_free) \
    X(libssh2_hostkey_hash) \
    X(libssh2_userauth_list) \
    X(libssh2_userauth_authenticated) \
    X(libssh2_userauth_publickey_frommemory) \
    X(libssh2_agent_init) \
    X(libssh2_agent_set_identity_path) \
    X(libssh2_agent_connect) \
    X(libssh2_agent_list_identities) \
    X(libssh2_agent_get_identity) \
    X(libssh2_agent_userauth) \
    X(libssh2_agent_disconnect) \
    X(libssh2_agent_free) \
    X(libssh2_channel_open_ex) \
    X(libssh2_channel_setenv_ex) \
    X(libssh2_channel_process_startup) \
    X(libssh2_channel_read_ex) \
    X(libssh2_channel_write_ex) \
    X(libssh2_channel_send_eof) \
    X(libssh2_channel_eof) \
    X(libssh2_channel_wait_closed) \
    X(libssh2_channel_get_exit_status) \
    X(libssh2_channel_get_exit_signal) \
    X(libssh2_channel_free)

#pragma clang assume_nonnull begin
struct ssh2_api {
#define SSH2_MEMBER(name) __typeof__(&name) name;
    SSH2_FUNCTIONS(SSH2_MEMBER)
#undef SSH2_MEMBER
};
#pragma clang assume_nonnull end

/// Loads and initializes libssh2 for the life of the process. NULL when it is not installed or lacks a function; `why`
/// then gets up to `capacity` bytes of explanation.
const struct ssh2_api *_Nullable ssh2_load(char *_Nonnull why, size_t capacity);

/// The SHA-256 digest of the bytes, by the library that libssh2 itself uses. False when that is not OpenSSL's, or
/// libssh2 is not loaded.
bool ssh2_sha256(const uint8_t *_Nonnull bytes, size_t count, uint8_t digest[_Nonnull 32]);

/// Has functions called: one with what the server says before it ends the connection; one when it has ended, after
/// which libssh2 believes that more may come and what was received before can still be read; and one that sends all
/// of the bytes, later if need be. The last two return false for a socket that is not the server's.
void ssh2_set_callbacks(
    LIBSSH2_SESSION *_Nonnull session, void *_Nonnull context,
    void (*_Nonnull disconnect)(void *_Nullable context, const char *_Nullable text, int count),
    bool (*_Nonnull end)(void *_Nullable context, int socket),
    bool (*_Nonnull send)(void *_Nullable context, int socket, const void *_Nullable bytes, size_t count));

#endif
