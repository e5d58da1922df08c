// libsodium, loaded at the first use: only the tailnet node pays for it, and a machine without it runs all the rest.
// Each function answers -1 where the library is missing, as it does for a failed operation.
#ifndef WORKSPACE_AGENT_CSODIUM_H
#define WORKSPACE_AGENT_CSODIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// Loads it unless it is. From any thread; fast once it is loaded.
/// - why: gets the reason when this is false.
bool wsd_load(char *why, size_t capacity);

/// Overwrites memory so that no compiler leaves it out.
void wsd_wipe(void *memory, size_t count);

/// Whether both are the same, in a time that does not depend on where they differ.
bool wsd_equal(const void *a, const void *b, size_t count);

/// X25519 (RFC 7748) with the base point: the public key of a private key. 32 bytes each.
int wsd_public_key(void *public_key, const void *private_key);

/// X25519. -1 when the result is all zero. 32 bytes each.
int wsd_shared_secret(void *secret, const void *private_key, const void *public_key);

/// ChaCha20-Poly1305 (RFC 8439). The output has 16 bytes more than the input; they may be at the same place.
int wsd_seal(void *output, const void *input, size_t count, const void *_Nullable aad, size_t aad_count,
             const void *nonce12, const void *key32);

/// The reverse: count is that of the input with its tag of 16 bytes. -1 when it is not authentic; less than 16 is not.
int wsd_open(void *output, const void *input, size_t count, const void *_Nullable aad, size_t aad_count,
             const void *nonce12, const void *key32);

/// XChaCha20-Poly1305, with a nonce of 24 bytes.
int wsd_xseal(void *output, const void *input, size_t count, const void *_Nullable aad, size_t aad_count,
              const void *nonce24, const void *key32);
int wsd_xopen(void *output, const void *input, size_t count, const void *_Nullable aad, size_t aad_count,
              const void *nonce24, const void *key32);

/// NaCl's box (X25519, XSalsa20, Poly1305): the key that both ends compute.
int wsd_box_key(void *key, const void *public_key, const void *private_key);

/// The box begins with its tag of 16 bytes.
int wsd_box_seal(void *output, const void *input, size_t count, const void *nonce24, const void *key32);
int wsd_box_open(void *output, const void *input, size_t count, const void *nonce24, const void *key32);

#pragma clang assume_nonnull end

#endif
