// The single file: the launcher with the bundle's archive behind it. It unpacks itself once, to a directory of its user
// alone, and starts what is there. Other users of the machine may have made any name beforehand, of any kind.
//
//   ELF | archive (gzip of ustar) | trailer
#define _GNU_SOURCE
#include "launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sha2.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

/// The last bytes of the file; numbers as little-endian.
struct trailer {
    uint64_t offset;
    uint64_t size;
    /// Of the archive.
    uint8_t hash[SHA256_DIGEST_LENGTH];
    /// Ends with NUL.
    char version[48];
    char magic[16];
};

static const char magic[16] = "wa-single-file1\n";
static const char marker[] = "complete";

/// Why places could not be used, a line each.
static char reasons[8192];

static int refuse(const char *format, ...) {
    size_t used = strlen(reasons);
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(reasons + used, sizeof reasons - used, format, arguments);
    va_end(arguments);
    if (count > 0 && used + (size_t)count + 1 < sizeof reasons) strcat(reasons, "\n");
    return -1;
}

static int write_all(int file, const void *bytes, size_t count) {
    while (count > 0) {
        ssize_t done = write(file, bytes, count);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        bytes = (const char *)bytes + done;
        count -= (size_t)done;
    }
    return 0;
}

// MARK: The archive

struct archive {
    int file;
    uint64_t position, end;
    z_stream stream;
    uint8_t in[64 << 10];
    SHA2_CTX hash;
};

/// Unpacks exactly so many bytes; -1 when the archive has no more or is damaged.
static int unpack(struct archive *archive, void *bytes, size_t count) {
    archive->stream.next_out = bytes;
    archive->stream.avail_out = (uInt)count;
    while (archive->stream.avail_out > 0) {
        if (archive->stream.avail_in == 0) {
            size_t wanted = sizeof archive->in;
            if (archive->end - archive->position < wanted) wanted = (size_t)(archive->end - archive->position);
            ssize_t got = wanted > 0 ? pread(archive->file, archive->in, wanted, (off_t)archive->position) : 0;
            if (got <= 0) return -1;
            SHA256Update(&archive->hash, archive->in, (size_t)got);
            archive->position += (uint64_t)got;
            archive->stream.next_in = archive->in;
            archive->stream.avail_in = (uInt)got;
        }
        int result = inflate(&archive->stream, Z_NO_FLUSH);
        if (result == Z_STREAM_END) break;
        if (result != Z_OK) return -1;
    }
    return archive->stream.avail_out == 0 ? 0 : -1;
}

/// Whether the archive is the one that the trailer describes; reads what is left of it.
static bool is_whole(struct archive *archive, const struct trailer *trailer) {
    uint8_t hash[SHA256_DIGEST_LENGTH];
    while (archive->position < archive->end) {
        size_t wanted = sizeof archive->in;
        if (archive->end - archive->position < wanted) wanted = (size_t)(archive->end - archive->position);
        ssize_t got = pread(archive->file, archive->in, wanted, (off_t)archive->position);
        if (got <= 0) return false;
        SHA256Update(&archive->hash, archive->in, (size_t)got);
        archive->position += (uint64_t)got;
    }
    SHA256Final(hash, &archive->hash);
    return memcmp(hash, trailer->hash, sizeof hash) == 0;
}

static bool octal(const char *digits, size_t count, uint64_t *number) {
    *number = 0;
    for (size_t index = 0; index < count && digits[index] != 0 && digits[index] != ' '; index++) {
        if (digits[index] < '0' || digits[index] > '7') return false;
        *number = *number * 8 + (uint64_t)(digits[index] - '0');
    }
    return true;
}

/// Writes the archive's files (ustar: directories and regular files) below a directory.
/// - Parameter mask: of their modes.
/// - Returns: 0, or -1 with a reason.
static int extract(int directory, const char *where, int source, const struct trailer *trailer, mode_t mask) {
    struct archive *archive = calloc(1, sizeof *archive);
    if (archive == NULL) return refuse("%s: no memory is left", where);
    *archive = (struct archive){.file = source, .position = trailer->offset, .end = trailer->offset + trailer->size};
    SHA256Init(&archive->hash);
    int result = -1;
    // 16: with a header of gzip.
    if (inflateInit2(&archive->stream, 15 + 16) != Z_OK) {
        free(archive);
        return refuse("%s: no memory is left", where);
    }
    for (;;) {
        char header[512], name[256 + 1];
        uint64_t size, mode;
        if (unpack(archive, header, sizeof header) != 0) {
            refuse("%s: the archive in this file is damaged; fetch the file again", where);
            goto end;
        }
        if (header[0] == 0) break;
        header[99] = 0;
        snprintf(name, sizeof name, "%.155s%s%.100s", header + 345, header[345] ? "/" : "", header);
        bool isDirectory = header[156] == '5';
        if (!octal(header + 124, 12, &size) || !octal(header + 100, 8, &mode) || name[0] == '/' ||
            strstr(name, "..") != NULL || (!isDirectory && header[156] != '0')) {
            refuse("%s: the archive in this file is damaged, with an entry %.40s; fetch the file again", where, name);
            goto end;
        }
        size_t length = strlen(name);
        if (length > 0 && name[length - 1] == '/') name[length - 1] = 0;
        if (isDirectory) {
            if (mkdirat(directory, name, 0700) != 0 || fchmodat(directory, name, 0755 & mask, 0) != 0) {
                refuse("%s/%s: %s", where, name, strerror(errno));
                goto end;
            }
            continue;
        }
        int file = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (file < 0) {
            refuse("%s/%s: %s", where, name, strerror(errno));
            goto end;
        }
        bool isDone = true;
        for (uint64_t left = size; left > 0 && isDone;) {
            char bytes[64 << 10];
            size_t some = left < sizeof bytes ? (size_t)left : sizeof bytes;
            // Padded to whole blocks.
            size_t padded = left <= sizeof bytes ? (some + 511) & ~(size_t)511 : some;
            if (unpack(archive, bytes, padded) != 0) {
                isDone = false;
                refuse("%s: the archive in this file is damaged; fetch the file again", where);
            } else if (write_all(file, bytes, some) != 0) {
                isDone = false;
                refuse("%s: %s", where, strerror(errno));
            }
            left -= some;
        }
        if (isDone && (fchmod(file, (mode_t)mode & mask) != 0 || fsync(file) != 0)) {
            isDone = false;
            refuse("%s: %s", where, strerror(errno));
        }
        close(file);
        if (!isDone) goto end;
    }
    if (is_whole(archive, trailer))
        result = 0;
    else
        refuse("%s: the archive in this file is not the one that it was made with; fetch the file again", where);
end:
    inflateEnd(&archive->stream);
    free(archive);
    return result;
}

/// Removes a directory of ours with all that is in it.
static void remove_tree(int directory, const char *name) {
    int inner = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = inner < 0 ? NULL : fdopendir(inner);
    if (list == NULL) {
        if (inner >= 0) close(inner);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(list), entry->d_name, 0) != 0) remove_tree(dirfd(list), entry->d_name);
    }
    closedir(list);
    unlinkat(directory, name, AT_REMOVEDIR);
}

// MARK: Places

/// Whether nobody but this user and root can change what is in a directory.
/// - Parameter is_shared: set once a directory was passed in which everyone may make names, as /tmp.
static bool is_trusted(const struct stat *info, const struct stat *root, bool *is_shared) {
    // Where ids are not mapped, root's directories belong to nobody, as does all that others have made.
    bool is_known = info->st_uid == geteuid() || info->st_uid == 0 || (info->st_uid == root->st_uid && !*is_shared);
    if (!is_known) return false;
    if ((info->st_mode & 022) == 0) return true;
    *is_shared = true;
    return (info->st_mode & S_ISVTX) != 0;
}

/// Whether another user may lead a path elsewhere, which has no links in it.
static bool is_exposed(const char *path) {
    char prefix[PATH_MAX];
    struct stat root, info;
    bool is_shared = false;
    if (stat("/", &root) != 0 || !is_trusted(&root, &root, &is_shared)) return true;
    snprintf(prefix, sizeof prefix, "%s", path);
    for (char *slash = prefix + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        if (lstat(prefix, &info) != 0 || !is_trusted(&info, &root, &is_shared)) return true;
        *slash = '/';
    }
    return false;
}

/// Goes to a directory, making what is missing. Nothing is made, and no link followed, where another user could have put it.
/// - Returns: the descriptor, or -1 with a reason.
static int walk(const char *path) {
    char parts[PATH_MAX];
    struct stat root, info;
    bool is_shared = false;
    if (path[0] != '/' || snprintf(parts, sizeof parts, "%s", path) >= (int)sizeof parts)
        return refuse("%s: not an absolute path, or too long", path);
    int directory = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fstat(directory, &root) != 0) return refuse("/: %s", strerror(errno));
    for (char *rest = parts, *part; (part = strsep(&rest, "/")) != NULL;) {
        if (*part == 0 || strcmp(part, ".") == 0) continue;
        if (fstat(directory, &info) != 0 || !is_trusted(&info, &root, &is_shared)) {
            close(directory);
            return refuse("%s: other users may change a directory on the way to it", path);
        }
        int next = openat(directory, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0 && errno == ENOENT && (mkdirat(directory, part, 0700) == 0 || errno == EEXIST))
            next = openat(directory, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int code = errno;
        if (next < 0 && fstatat(directory, part, &info, AT_SYMLINK_NOFOLLOW) == 0) {
            if (!S_ISLNK(info.st_mode))
                code = S_ISDIR(info.st_mode) ? code : ENOTDIR;
            else if (rest != NULL && (info.st_uid == geteuid() || info.st_uid == 0))
                // Where it leads to is looked at as every other directory.
                next = openat(directory, part, O_PATH | O_DIRECTORY | O_CLOEXEC), code = errno;
            else
                code = ELOOP;
        }
        close(directory);
        if (next < 0) return refuse("%s: %s", path, code == ELOOP ? "there is a link on the way to it" : strerror(code));
        directory = next;
    }
    return directory;
}

/// Opens a directory of this user alone, which is made where it is missing.
/// - Parameter path: PATH_MAX bytes; becomes the path without links, which nobody else can lead elsewhere.
/// - Returns: the descriptor, or -1 with a reason.
static int open_place(char *path) {
    char number[64];
    struct stat info;
    struct statvfs system;
    int found = walk(path);
    if (found < 0) return -1;
    int directory = openat(found, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(found);
    if (directory < 0) return refuse("%s: %s", path, strerror(errno));
    snprintf(number, sizeof number, "/proc/self/fd/%d", directory);
    ssize_t length = readlink(number, path, PATH_MAX - 1);
    if (length > 0) path[length] = 0;
    if (length <= 0 || fstat(directory, &info) != 0 || fstatvfs(directory, &system) != 0) {
        refuse("%s: %s", path, strerror(errno));
    } else if (info.st_uid != geteuid()) {
        refuse("%s: it belongs to uid %u", path, info.st_uid);
    } else if ((info.st_mode & 077) != 0) {
        refuse("%s: it is open to other users (mode %04o); use chmod 0700, or another directory", path,
               info.st_mode & 07777);
    } else if (is_exposed(path)) {
        refuse("%s: other users may change a directory on the way to it", path);
    } else if ((system.f_flag & ST_NOEXEC) != 0) {
        refuse("%s: programs may not be started there (it is mounted noexec)", path);
    } else {
        return directory;
    }
    close(directory);
    return -1;
}

/// Whether a whole bundle is there: the marker is written last.
static bool is_unpacked(int place, const char *name, const struct trailer *trailer) {
    int bundle = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (bundle < 0) return false;
    struct stat info;
    uint8_t hash[SHA256_DIGEST_LENGTH];
    bool isOurs = fstat(bundle, &info) == 0 && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
    int file = isOurs ? openat(bundle, marker, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    close(bundle);
    if (file < 0) return false;
    bool isWhole = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                   read(file, hash, sizeof hash) == sizeof hash && memcmp(hash, trailer->hash, sizeof hash) == 0;
    close(file);
    return isWhole;
}

/// Remembers from which file the bundle came, then that it is whole.
static int finish(int bundle, const char *where, const char *own, const struct trailer *trailer) {
    int source = openat(bundle, "source", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (source < 0 || write_all(source, own, strlen(own)) != 0) return refuse("%s: %s", where, strerror(errno));
    close(source);
    int file = openat(bundle, marker, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0 || write_all(file, trailer->hash, sizeof trailer->hash) != 0 || fsync(file) != 0)
        return refuse("%s: %s", where, strerror(errno));
    close(file);
    return 0;
}

/// Sees to it that the place has the bundle. Starts at the same time wait for the first of them.
/// - Returns: 0, or -1 with a reason.
static int provide(int place, const char *path, const char *name, int source, const char *own,
                   const struct trailer *trailer) {
    if (is_unpacked(place, name, trailer)) return 0;
    int lock = openat(place, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat info;
    if (lock < 0 || fstat(lock, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
        refuse("%s/lock: %s", path, lock < 0 ? strerror(errno) : "it is not a file of this user");
        if (lock >= 0) close(lock);
        return -1;
    }
    while (flock(lock, LOCK_EX) != 0 && errno == EINTR) {}
    int result = 0;
    if (!is_unpacked(place, name, trailer)) {
        // Of an unpack that was interrupted, or a damaged one.
        static const char temporary[] = "unpacking";
        remove_tree(place, temporary);
        remove_tree(place, name);
        unlinkat(place, name, 0);
        int bundle = -1;
        if (mkdirat(place, temporary, 0700) != 0 ||
            (bundle = openat(place, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) {
            result = refuse("%s: %s", path, strerror(errno));
        } else if (extract(bundle, path, source, trailer, 0700) != 0 || finish(bundle, path, own, trailer) != 0) {
            result = -1;
        } else if (renameat(place, temporary, place, name) != 0) {
            result = refuse("%s/%s: %s", path, name, strerror(errno));
        }
        if (bundle >= 0) close(bundle);
        if (result != 0) remove_tree(place, temporary);
    }
    close(lock);
    return result;
}

/// Has a bundle count as none.
static void forget(int place, const char *name) {
    int bundle = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (bundle < 0) return;
    unlinkat(bundle, marker, 0);
    close(bundle);
}

/// `--unpack-only DIR`: for all users.
static int unpack_only(const char *path, int source, const struct trailer *trailer) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST) {
        complain("%s: %s", path, strerror(errno));
        return 1;
    }
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        complain("%s: %s", path, strerror(errno));
        return 1;
    }
    if (faccessat(directory, "workspace-agent", F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        complain("%s/workspace-agent is there already; remove it, or choose another directory", path);
        return 1;
    }
    if (extract(directory, path, source, trailer, 0755) != 0) {
        remove_tree(directory, "workspace-agent");
        complain("%s", reasons);
        return 1;
    }
    printf("%s/workspace-agent/bin/workspace-agent\n", path);
    return 0;
}

static int read_trailer(int file, struct trailer *trailer) {
    struct stat info;
    if (fstat(file, &info) != 0 || info.st_size < (off_t)sizeof *trailer) return -1;
    off_t place = info.st_size - (off_t)sizeof *trailer;
    if (pread(file, trailer, sizeof *trailer, place) != sizeof *trailer) return -1;
    trailer->version[sizeof trailer->version - 1] = 0;
    return memcmp(trailer->magic, magic, sizeof magic) == 0 && trailer->offset <= (uint64_t)place &&
                   trailer->size == (uint64_t)place - trailer->offset
               ? 0
               : -1;
}

int main(int argc, char **argv, char **envp) {
    char own[PATH_MAX], name[128], path[PATH_MAX], bundle[PATH_MAX];
    struct trailer trailer;
    if (own_path(own, sizeof own) != 0) return 127;
    int source = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (source < 0 || read_trailer(source, &trailer) != 0) {
        complain("%s is not whole; fetch the file again", own);
        return 127;
    }
    if (argc == 3 && strcmp(argv[1], "--unpack-only") == 0) return unpack_only(argv[2], source, &trailer);

    int length = snprintf(name, sizeof name, "%s-", trailer.version);
    for (int index = 0; index < 8; index++) length += sprintf(name + length, "%02x", trailer.hash[index]);
    const char *chosen = getenv("WORKSPACE_AGENT_UNPACK_DIR");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    for (int number = 0; number < 4; number++) {
        int count = -1;
        switch (number) {
        case 0: if (chosen && *chosen) count = snprintf(path, sizeof path, "%s", chosen); break;
        case 1: if (cache && *cache) count = snprintf(path, sizeof path, "%s/workspace-agent", cache); break;
        // A home that does not exist is not made.
        case 2: if (home && *home && access(home, X_OK) == 0) count = snprintf(path, sizeof path, "%s/.cache/workspace-agent", home); break;
        case 3: count = snprintf(path, sizeof path, "/tmp/workspace-agent-%u/bundle", geteuid()); break;
        }
        if (count <= 0 || count >= (int)sizeof path) continue;
        int place = open_place(path);
        if (place < 0) continue;
        if (snprintf(bundle, sizeof bundle, "%s/%s/workspace-agent", path, name) >= (int)sizeof bundle) count = 0;
        // Once more where files are missing that were there, as those that a cleaner of /tmp has removed.
        for (int tries = 0; count > 0 && tries < 2 && provide(place, path, name, source, own, &trailer) == 0; tries++) {
            start_bundle(bundle, argc, argv, envp);
            int code = errno;
            refuse("%s: %s", bundle, strerror(code));
            if (code != ENOENT) break;
            forget(place, name);
        }
        close(place);
    }
    complain("there is no place to unpack to; name a directory with WORKSPACE_AGENT_UNPACK_DIR\n%s", reasons);
    return 127;
}
