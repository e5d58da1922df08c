#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// What older C libraries and kernel headers lack (openat2(2)); the number is the same on every architecture.
enum { OPENAT2 = 437 };
enum { RESOLVE_NO_LINKS = 0x04, RESOLVE_INSIDE = 0x08 };
struct how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

_Static_assert(WA_O_PATH == O_PATH, "O_PATH");

static int open_one(int directory, const char *name, int flags, unsigned mode) {
    int fd;
    do {
        fd = openat(directory, name, flags, (mode_t)mode);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

static int walk_beneath(int directory, const char *path, int flags, unsigned mode) {
    char name[NAME_MAX + 1];
    int at = directory;
    if (strlen(path) >= PATH_MAX) return -ENAMETOOLONG;
    while (1) {
        size_t length = strcspn(path, "/");
        const char *rest = path + length + strspn(path + length, "/");
        int next;
        if (length > NAME_MAX) {
            next = -ENAMETOOLONG;
        } else if (length == 0 || (length == 2 && path[0] == '.' && path[1] == '.')) {
            next = -EXDEV;
        } else {
            memcpy(name, path, length);
            name[length] = 0;
            // With O_DIRECTORY a link is ENOTDIR.
            next = *rest ? open_one(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0)
                         : open_one(at, name, flags, mode);
        }
        if (at != directory) close(at);
        if (next < 0 || !*rest) return next;
        at = next;
        path = rest;
    }
}

int wa_open_beneath(int directory, const char *path, int flags, unsigned mode, bool walk) {
    flags |= O_CLOEXEC | O_NOFOLLOW;
    struct how how = {
        .flags = (uint64_t)(unsigned)flags,
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_NO_LINKS | RESOLVE_INSIDE,
    };
    while (!walk) {
        long fd = syscall(OPENAT2, directory, path, &how, sizeof how);
        if (fd >= 0) return (int)fd;
        // Filters of system calls that do not know this one say EPERM.
        if (errno == ENOSYS || errno == EPERM) break;
        if (errno != EINTR && errno != EAGAIN) return -errno;
    }
    return walk_beneath(directory, path, flags, mode);
}
