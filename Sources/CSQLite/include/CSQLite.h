// SQLite, loaded at run time: only the queue of boundary logs pays for it, and a machine without it runs all the rest.
// Types and constants come from libsqlite3-dev; each function is called through a pointer of the same type.
#ifndef WORKSPACE_AGENT_CSQLITE_H
#define WORKSPACE_AGENT_CSQLITE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#define SQ_FUNCTIONS(X) \
    X(sqlite3_open_v2) \
    X(sqlite3_close_v2) \
    X(sqlite3_extended_errcode) \
    X(sqlite3_extended_result_codes) \
    X(sqlite3_errstr) \
    X(sqlite3_db_readonly) \
    X(sqlite3_changes64) \
    X(sqlite3_exec) \
    X(sqlite3_prepare_v3) \
    X(sqlite3_finalize) \
    X(sqlite3_bind_int64) \
    X(sqlite3_bind_blob) \
    X(sqlite3_bind_zeroblob) \
    X(sqlite3_step) \
    X(sqlite3_sql) \
    X(sqlite3_reset) \
    X(sqlite3_clear_bindings) \
    X(sqlite3_column_int64) \
    X(sqlite3_column_text) \
    X(sqlite3_column_bytes) \
    X(sqlite3_column_blob)

#pragma clang assume_nonnull begin
struct sq_api {
#define SQ_MEMBER(name) __typeof__(&name) name;
    SQ_FUNCTIONS(SQ_MEMBER)
#undef SQ_MEMBER
};
#pragma clang assume_nonnull end

/// Loads SQLite for the life of the process. From any thread, any number of times. NULL when it is not installed or
/// lacks a function; `why` then gets up to `capacity` bytes of explanation.
const struct sq_api *_Nullable sq_load(char *_Nonnull why, size_t capacity);

/// Whether ``sq_load`` would succeed. Leaves nothing loaded that was not.
bool sq_is_usable(char *_Nonnull why, size_t capacity);

/// What an extended result code means; NULL when SQLite is not loaded.
const char *_Nullable sq_text(int result);

#endif
