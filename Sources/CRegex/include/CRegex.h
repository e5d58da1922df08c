// Regular expressions of a linear-time kind: RE2 behind functions that Swift can call.
#ifndef WORKSPACE_AGENT_CREGEX_H
#define WORKSPACE_AGENT_CREGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct wa_regex wa_regex;

enum {
    WA_REGEX_IGNORE_CASE = 1,
    /// The pattern is text to find, without special characters.
    WA_REGEX_LITERAL = 2,
    /// `^` and `$` match at the bounds of lines, and no match reaches beyond one.
    WA_REGEX_LINES = 4,
};

/// Compiles a pattern.
/// - error: gets why the pattern is refused, NUL-terminated.
/// Returns NULL when it is.
wa_regex *wa_regex_make(
    const char *pattern, size_t length, int options, size_t memory, char *error, size_t error_capacity);
void wa_regex_free(wa_regex *regex);

/// Looks for the leftmost match in text[start..<end]; `^` and `$` mean the bounds of the whole text unless
/// WA_REGEX_LINES was given. May be called from several
/// threads at once.
bool wa_regex_find(
    const wa_regex *regex, const char *text, size_t length, size_t start, size_t end, size_t *match_start,
    size_t *match_end);

#ifdef __cplusplus
}
#endif

#endif
