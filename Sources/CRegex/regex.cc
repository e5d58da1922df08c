#include "include/CRegex.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

struct wa_regex {
    re2::RE2 expression;
    wa_regex(const re2::StringPiece &pattern, const re2::RE2::Options &options) : expression(pattern, options) {}
};

wa_regex *wa_regex_make(
    const char *pattern, size_t length, int options, size_t memory, char *error, size_t error_capacity) {
    re2::RE2::Options chosen;
    chosen.set_log_errors(false);
    chosen.set_case_sensitive((options & WA_REGEX_IGNORE_CASE) == 0);
    chosen.set_literal((options & WA_REGEX_LITERAL) != 0);
    chosen.set_max_mem(static_cast<int64_t>(memory));
    chosen.set_never_nl((options & WA_REGEX_LINES) != 0);
    std::string text(pattern, length);
    // A flag of the syntax, for there is no option for it.
    if ((options & WA_REGEX_LINES) != 0 && (options & WA_REGEX_LITERAL) == 0) text.insert(0, "(?m)");
    auto regex = new (std::nothrow) wa_regex(text, chosen);
    if (regex != nullptr && regex->expression.ok()) return regex;
    if (error_capacity > 0) {
        const char *text = regex == nullptr ? "out of memory" : regex->expression.error().c_str();
        size_t count = std::min(std::strlen(text), error_capacity - 1);
        std::memcpy(error, text, count);
        error[count] = 0;
    }
    delete regex;
    return nullptr;
}

void wa_regex_free(wa_regex *regex) { delete regex; }

bool wa_regex_find(
    const wa_regex *regex, const char *text, size_t length, size_t start, size_t end, size_t *match_start,
    size_t *match_end) {
    if (start > end || end > length) return false;
    re2::StringPiece match;
    if (!regex->expression.Match(
            re2::StringPiece(text, length), start, end, re2::RE2::UNANCHORED, &match, 1))
        return false;
    *match_start = static_cast<size_t>(match.data() - text);
    *match_end = *match_start + match.size();
    return true;
}
