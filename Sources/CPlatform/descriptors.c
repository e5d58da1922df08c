#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// Only our end does not block: what a child reads or writes must go on blocking.
static int make_pipe(int fds[2], int ours) { return pipe2(fds, O_CLOEXEC) < 0 ? -errno : wa_set_nonblocking(fds[ours]); }

int wa_pipe(int fds[2]) { return make_pipe(fds, 0); }

int wa_input_pipe(int fds[2]) { return make_pipe(fds, 1); }

int wa_set_pipe_size(int fd, int bytes) {
    int rc = fcntl(fd, F_SETPIPE_SZ, bytes);
    return rc < 0 ? -errno : rc;
}

int wa_readable_bytes(int fd) {
    int count = 0;
    return ioctl(fd, FIONREAD, &count) < 0 ? -errno : count;
}

int wa_open(const char *path, int flags, unsigned mode) {
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, (mode_t)mode);
    } while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

int wa_openat(int directory, const char *name, int flags, unsigned mode) {
    int fd = openat(directory, name, flags | O_CLOEXEC, mode);
    return fd < 0 ? -errno : fd;
}

int wa_open_directory(const char *path) { return wa_open(path, O_PATH | O_DIRECTORY, 0); }

int wa_rename_new(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

ssize_t wa_read_entries(int directory, void *buffer, size_t count) {
    // The C library of older systems has no function for it.
    long got = syscall(SYS_getdents64, directory, buffer, count);
    return got < 0 ? -errno : (ssize_t)got;
}

int wa_set_cloexec(int fd) { return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0; }

int wa_set_nonblocking(int fd) {
    int on = 1;
    return ioctl(fd, FIONBIO, &on) < 0 ? -errno : 0;
}

ssize_t wa_read(int fd, void *buffer, size_t count) {
    ssize_t n;
    do {
        n = read(fd, buffer, count);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t wa_read_cached(int fd, void *buffer, size_t count, int64_t offset) {
    struct iovec area = {.iov_base = buffer, .iov_len = count};
    ssize_t got = preadv2(fd, &area, 1, offset, RWF_NOWAIT);
    return got < 0 ? -errno : got;
}

void wa_begin_writeback(int fd, int64_t offset, int64_t count) {
    (void)sync_file_range(fd, offset, count, SYNC_FILE_RANGE_WRITE);
}

int wa_reserve(int fd, int64_t size) {
    int result;
    do {
        result = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : 0;
}

ssize_t wa_copy_piece(int from, int to, int64_t offset, size_t count) {
    char buffer[64 << 10];
    ssize_t got;
    if (count > sizeof buffer) count = sizeof buffer;
    do {
        got = pread(from, buffer, count, offset);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return -errno;
    for (ssize_t done = 0; done < got;) {
        ssize_t n = pwrite(to, buffer + done, got - done, offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return done > 0 ? done : -errno;
        done += n;
    }
    return got;
}

ssize_t wa_write(int fd, const void *bytes, size_t count) {
    ssize_t n;
    do {
        n = write(fd, bytes, count);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

int wa_epoll_create(void) {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int control(int epfd, int operation, int fd, uint32_t events, uint64_t token) {
    struct epoll_event event = {.events = events, .data = {.u64 = token}};
    return epoll_ctl(epfd, operation, fd, &event) < 0 ? -errno : 0;
}

int wa_epoll_add(int epfd, int fd, uint32_t events, uint64_t token) {
    return control(epfd, EPOLL_CTL_ADD, fd, events, token);
}

int wa_epoll_remove(int epfd, int fd) { return control(epfd, EPOLL_CTL_DEL, fd, 0, 0); }

int wa_epoll_wait(int epfd, struct wa_event *events, int capacity, int timeout_ms) {
    struct epoll_event raw[64];
    if (capacity > 64) capacity = 64;
    int count = epoll_wait(epfd, raw, capacity, timeout_ms);
    if (count < 0) return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < count; i++) {
        events[i].events = raw[i].events;
        events[i].token = raw[i].data.u64;
    }
    return count;
}

int wa_eventfd(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

void wa_eventfd_signal(int fd) {
    uint64_t one = 1;
    // EAGAIN means that the counter is full, so the reader is due to wake anyway.
    ssize_t rc = write(fd, &one, sizeof one);
    (void)rc;
}

void wa_eventfd_drain(int fd) {
    uint64_t count;
    ssize_t rc = read(fd, &count, sizeof count);
    (void)rc;
}

static sigset_t signal_set(const int *signals, int count) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < count; i++) sigaddset(&set, signals[i]);
    return set;
}

int wa_block_signals(const int *signals, int count) {
    sigset_t set = signal_set(signals, count);
    return -pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int wa_signalfd(const int *signals, int count) {
    sigset_t set = signal_set(signals, count);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int wa_signalfd_next(int fd) {
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

bool wa_signal_is_ignored(int signal) {
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void wa_ignore_sigpipe(void) { signal(SIGPIPE, SIG_IGN); }

int wa_memfd(const char *name) {
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) return -errno;
    if (fchmod(fd, 0600) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

int64_t wa_birth_time(const char *path) {
    struct statx info;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &info) < 0) return -errno;
    return info.stx_mask & STATX_BTIME ? info.stx_btime.tv_sec : -ENOTSUP;
}
