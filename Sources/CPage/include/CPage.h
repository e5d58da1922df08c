// The page at /ui: HTML, CSS and JavaScript, embedded in the program.
#ifndef WORKSPACE_AGENT_CPAGE_H
#define WORKSPACE_AGENT_CPAGE_H

#include <stddef.h>

#pragma clang assume_nonnull begin

/// The page, UTF-8 without a final NUL. Each `@NONCE@` in it stands for the nonce of the answer's
/// Content-Security-Policy. The bytes live as long as the program.
const unsigned char *wa_page(size_t *length);

#pragma clang assume_nonnull end

#endif
