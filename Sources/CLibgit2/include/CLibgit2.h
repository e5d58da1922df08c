// libgit2, loaded at run time: only the git worker pays for it, and a machine without it still runs
// (every repository then goes to the git CLI). Types and constants come from libgit2-dev; each
// function is called through a pointer of the same type.
#ifndef WORKSPACE_AGENT_CLIBGIT2_H
#define WORKSPACE_AGENT_CLIBGIT2_H

#include <git2.h>

#define WG_FUNCTIONS(X) \
    X(git_libgit2_init) \
    X(git_error_last) \
    X(git_repository_open) \
    X(git_repository_free) \
    X(git_repository_index) \
    X(git_repository_config_snapshot) \
    X(git_repository_odb) \
    X(git_config_get_string) \
    X(git_config_free) \
    X(git_config_iterator_new) \
    X(git_config_next) \
    X(git_config_iterator_free) \
    X(git_reference_name_to_id) \
    X(git_commit_lookup) \
    X(git_commit_tree) \
    X(git_commit_free) \
    X(git_tree_entry_bypath) \
    X(git_tree_entry_id) \
    X(git_tree_entry_filemode_raw) \
    X(git_tree_entry_free) \
    X(git_tree_free) \
    X(git_index_read) \
    X(git_index_entrycount) \
    X(git_index_get_byindex) \
    X(git_index_get_bypath) \
    X(git_index_has_conflicts) \
    X(git_index_free) \
    X(git_diff_options_init) \
    X(git_diff_tree_to_index) \
    X(git_diff_index_to_workdir) \
    X(git_diff_num_deltas) \
    X(git_diff_get_delta) \
    X(git_diff_free) \
    X(git_diff_buffers) \
    X(git_attr_get_many) \
    X(git_attr_value) \
    X(git_ignore_path_is_ignored) \
    X(git_odb_read) \
    X(git_odb_read_header) \
    X(git_odb_hash) \
    X(git_odb_object_data) \
    X(git_odb_object_size) \
    X(git_odb_object_free) \
    X(git_odb_free)

#pragma clang assume_nonnull begin
struct wg_api {
#define WG_MEMBER(name) __typeof__(&name) name;
    WG_FUNCTIONS(WG_MEMBER)
#undef WG_MEMBER
};
#pragma clang assume_nonnull end

/// Loads and initializes libgit2 for the life of the process. NULL when it is not installed or lacks
/// a function; `why` then gets up to `capacity` bytes of explanation. Ownership of repositories is not
/// checked by the library (the caller does), and at most `mapped_limit` bytes of packs are mapped.
const struct wg_api *_Nullable wg_load(size_t mapped_limit, char *_Nonnull why, size_t capacity);

#endif
