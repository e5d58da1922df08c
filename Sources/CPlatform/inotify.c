#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int wa_inotify(void) {
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int wa_inotify_watch(int fd, const char *directory) {
    int watch = inotify_add_watch(
        fd, directory,
        IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF
            | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK);
    return watch < 0 ? -errno : watch;
}

int wa_inotify_watch_entries(int fd, const char *directory) {
    int watch = inotify_add_watch(
        fd, directory, IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR);
    return watch < 0 ? -errno : watch;
}

int wa_inotify_watch_changes(int fd, const char *directory) {
    int watch = inotify_add_watch(
        fd, directory,
        IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF
            | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK);
    return watch < 0 ? -errno : watch;
}

void wa_inotify_unwatch(int fd, int watch) { inotify_rm_watch(fd, watch); }

size_t wa_inotify_parse(const void *bytes, size_t count, struct wa_file_event *event) {
    struct inotify_event head;
    if (count < sizeof head) return 0;
    memcpy(&head, bytes, sizeof head);
    if (count - sizeof head < head.len) return 0;
    event->watch = head.wd;
    event->overflow = (head.mask & IN_Q_OVERFLOW) != 0;
    event->gone = (head.mask & (IN_IGNORED | IN_UNMOUNT)) != 0;
    event->itself = (head.mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0;
    event->directory = (head.mask & IN_ISDIR) != 0;
    event->entries = (head.mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)) != 0;
    event->change = head.mask & IN_CREATE ? WA_FILE_CREATED
        : head.mask & IN_DELETE           ? WA_FILE_DELETED
        : head.mask & IN_MOVED_FROM       ? WA_FILE_LEFT
        : head.mask & IN_MOVED_TO         ? WA_FILE_CAME
                                          : WA_FILE_MODIFIED;
    event->cookie = head.cookie;
    event->name = (const char *)bytes + sizeof head;
    event->name_length = strnlen(event->name, head.len);
    return sizeof head + head.len;
}

int wa_socketpair(int fds[2]) {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : 0;
}

void wa_limit_memory(uint64_t address_space, uint64_t data) {
    struct rlimit limit = {.rlim_cur = address_space, .rlim_max = address_space};
    setrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = limit.rlim_max = data;
    setrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = limit.rlim_max = 0;
    setrlimit(RLIMIT_CORE, &limit);
}

void wa_forbid_core_dumps(void) {
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
}

void wa_hide_memory(void) {
    wa_forbid_core_dumps();
    // A pattern that pipes dumps to a program ignores the limit.
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
