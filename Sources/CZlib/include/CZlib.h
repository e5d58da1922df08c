// zlib, loaded at run time: only compressed archives need it. Types and constants come from zlib1g-dev.
#ifndef WORKSPACE_AGENT_CZLIB_H
#define WORKSPACE_AGENT_CZLIB_H

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

/// Loads zlib for the life of the process. From any thread, any number of times. False when it is not installed;
/// `why` then gets up to `capacity` bytes of explanation. Until it has returned true, no other function may be called.
bool wz_load(char *_Nonnull why, size_t capacity);

/// Whether ``wz_load`` would succeed. Leaves nothing loaded that was not.
bool wz_is_usable(char *_Nonnull why, size_t capacity);

/// Prepares to write the gzip format. Level 1 (fast) to 9 (small).
int wz_deflate_init(z_stream *_Nonnull stream, int level);
int wz_deflate(z_stream *_Nonnull stream, int flush);
int wz_deflate_end(z_stream *_Nonnull stream);

/// Prepares to read the gzip format.
int wz_inflate_init(z_stream *_Nonnull stream);
int wz_inflate(z_stream *_Nonnull stream, int flush);
int wz_inflate_reset(z_stream *_Nonnull stream);
int wz_inflate_end(z_stream *_Nonnull stream);

#endif
