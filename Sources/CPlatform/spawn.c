#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

// Milliseconds for which a program that is open for writing is tried again.
enum { WA_SPAWN_BUSY_TRIES = 100 };

// What the child needs; in the parent's frame.
struct child {
    const struct wa_spawn_options *options;
    volatile struct wa_spawn_result *result;
    const char *oom_text;
    size_t oom_length;
    bool bound;
    // Signals that the child sets to their default, bit 0 is signal 1.
    uint64_t signals;
};

// Every signal that can be set.
static const uint64_t all_signals = ~(1ULL << (SIGKILL - 1) | 1ULL << (SIGSTOP - 1));

// Runs in the child, which shares the parent's memory: only system calls, and only writes to the
// result and to this frame. Not posix_spawn, because niceness, the OOM score and the descriptor
// limit have no spawn attribute and must hold before the program starts (a child of the program
// would otherwise inherit the daemon's).
static void run_child(const struct child *child) {
    const struct wa_spawn_options *o = child->options;
    volatile struct wa_spawn_result *result = child->result;
    result->stage = WA_SPAWN_SETUP;

    if (child->bound && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) goto failed;

    // The system call itself: the C library refuses to touch the two signals that it keeps for
    // itself, yet an ignored one would be inherited. All zero is SIG_DFL in every layout.
    const unsigned long default_action[8] = {0};
    for (int signal = 1; signal < NSIG; signal++) {
        if (child->signals >> (signal - 1) & 1)
            syscall(SYS_rt_sigaction, signal, default_action, NULL, (size_t)8);
    }

    if (setsid() < 0) goto failed;

    // A source below 3 would be overwritten by an earlier dup2; the launcher's pipes are above.
    if (dup2(o->stdin_fd, 0) < 0 || dup2(o->stdout_fd, 1) < 0 || dup2(o->stderr_fd, 2) < 0)
        goto failed;
    // At once, not only by execve: among them are the write ends of pipes whose programs another thread
    // starts, and what comes next may block on a slow disk.
    syscall(SYS_close_range, 3u, ~0u, 0u);
    if (o->terminal && ioctl(0, TIOCSCTTY, 0) != 0) goto failed;

    if (o->set_priority) {
        errno = 0;
        if (nice(o->nice_increment) == -1 && errno != 0) result->nice_error = errno;
        // While a vfork child has not executed, the kernel applies the score to it alone.
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, child->oom_text, child->oom_length) < 0) result->oom_error = errno;
        if (fd >= 0) close(fd);
    }
    // After everything that opens a descriptor: we may have more of them open than the child may.
    if (o->nofile_soft != 0) {
        struct rlimit limit;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
            limit.rlim_cur = o->nofile_soft;
            setrlimit(RLIMIT_NOFILE, &limit);
        }
    }

    // The child of a vfork has a umask of its own.
    if (o->file_mask >= 0) umask((mode_t)o->file_mask);

    if (o->workdir != NULL && chdir(o->workdir) != 0) {
        result->stage = WA_SPAWN_CHDIR;
        goto failed;
    }

    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);

    result->stage = WA_SPAWN_EXEC;
    // A program that we have just written may still be open for writing, in a child that another thread has
    // forked and that has not executed its program yet.
    for (int tries = 0;; tries++) {
        execve(o->path, o->argv, o->envp);
        if (errno != ETXTBSY || tries == WA_SPAWN_BUSY_TRIES) break;
        const struct timespec pause = {.tv_sec = 0, .tv_nsec = 1000000};
        syscall(SYS_nanosleep, &pause, NULL);
    }
failed:
    result->error = errno;
    _exit(127);
}

// Bytes of the child's stack, in the frame of the parent, which stands still meanwhile.
enum { WA_SPAWN_STACK = 16384 };

// struct clone_args of the kernel's first version, which headers may lack.
struct first_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

// clone3 as vfork: returns in the parent once the child has executed its program or ended. The
// child runs on the given stack, for it must not touch the frames that the parent returns through.
static long clone_child(struct first_clone_args *args, const struct child *child) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile(
        "syscall\n\t"
        "test %%rax, %%rax\n\t"
        "jnz 1f\n\t"
        "mov %[child], %%rdi\n\t"
        "call *%[run]\n\t"
        "ud2\n"
        "1:"
        : "=a"(result)
        : "a"((long)SYS_clone3), "D"(args), "S"(sizeof *args), [run] "r"(run_child), [child] "r"(child)
        : "rcx", "r11", "memory", "cc");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone3;
    register long x0 __asm__("x0") = (long)args;
    register long x1 __asm__("x1") = (long)sizeof *args;
    __asm__ volatile(
        "svc #0\n\t"
        "cbnz x0, 1f\n\t"
        "mov x0, %[child]\n\t"
        "blr %[run]\n\t"
        "brk #0\n"
        "1:"
        : "+r"(x0)
        : "r"(x8), "r"(x1), [run] "r"(run_child), [child] "r"(child)
        : "memory", "cc");
    return x0;
#else
    (void)args;
    (void)child;
    return -ENOSYS;
#endif
}

// The signals that this process ignores: clone3 gives the child the default in place of handlers
// only. Looked up once: the daemon's dispositions stand before its first start.
static uint64_t ignored_signals(void) {
    static _Atomic uint64_t known;
    uint64_t ignored = atomic_load_explicit(&known, memory_order_relaxed);
    if (ignored != 0) return ignored;
    // Libraries may begin to ignore this one at any time.
    ignored = 1ULL << (SIGPIPE - 1);
    for (int signal = 1; signal < NSIG; signal++) {
        // Handler first, in every layout.
        unsigned long action[8] = {0};
        if (syscall(SYS_rt_sigaction, signal, NULL, action, (size_t)8) == 0 && action[0] == (unsigned long)SIG_IGN)
            ignored |= 1ULL << (signal - 1);
    }
    atomic_store_explicit(&known, ignored, memory_order_relaxed);
    return ignored;
}

// One system call for child, pidfd and signal dispositions. False where the kernel is too old for
// it, or a container's seccomp profile refuses it.
static bool spawn_by_clone3(struct child *child, pid_t *pid, int *pidfd, int *error) {
    static atomic_bool refused;
    if (atomic_load_explicit(&refused, memory_order_relaxed)) return false;
    _Alignas(16) char stack[WA_SPAWN_STACK];
    child->signals = ignored_signals();
    *pidfd = -1;
    struct first_clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND | (child->bound ? 0 : CLONE_PIDFD),
        .pidfd = child->bound ? 0 : (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)stack,
        .stack_size = sizeof stack,
    };
    long result = clone_child(&args, child);
    if (result == -ENOSYS || result == -EPERM || result == -EINVAL) {
        atomic_store_explicit(&refused, true, memory_order_relaxed);
        return false;
    }
    *pid = result < 0 ? -1 : (pid_t)result;
    *error = result < 0 ? (int)-result : 0;
    return true;
}

__attribute__((noinline)) static void spawn_by_vfork(struct child *child, pid_t *pid, int *pidfd, int *error) {
    child->signals = all_signals;
    *pidfd = -1;
    *pid = vfork();
    if (*pid == 0) {
        run_child(child);
        _exit(127);
    }
    *error = *pid < 0 ? errno : 0;
    if (*pid < 0 || child->bound || child->result->error != 0) return;
    *pidfd = wa_pidfd_open(*pid);
    if (*pidfd >= 0) return;
    *error = -*pidfd;
    kill(*pid, SIGKILL);
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR) {
    }
    *pid = -1;
}

static void spawn(const struct wa_spawn_options *options, struct wa_spawn_result *result, bool bound) {
    memset(result, 0, sizeof *result);
    char oom_text[16];
    int oom_length = snprintf(oom_text, sizeof oom_text, "%d", options->oom_score_adj);
    struct child child = {
        .options = options,
        .result = result,
        .oom_text = oom_text,
        .oom_length = (size_t)oom_length,
        .bound = bound,
    };

    // No handler of ours may run in the child while it borrows our memory.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid;
    int pidfd, error;
    if (!spawn_by_clone3(&child, &pid, &pidfd, &error)) spawn_by_vfork(&child, &pid, &pidfd, &error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    result->pid = -1;
    result->pidfd = -1;
    if (pid < 0) {
        result->stage = WA_SPAWN_FORK;
        result->error = error;
    } else if (result->error != 0) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        if (pidfd >= 0) close(pidfd);
    } else {
        result->pid = pid;
        result->pidfd = pidfd;
        result->stage = WA_SPAWN_OK;
    }
}

void wa_spawn(const struct wa_spawn_options *options, struct wa_spawn_result *result) {
    spawn(options, result, false);
}

void wa_spawn_bound(const struct wa_spawn_options *options, struct wa_spawn_result *result) {
    spawn(options, result, true);
}

int wa_pidfd_open(pid_t pid) {
    long fd = syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : (int)fd;
}

int wa_pidfd_send_signal(int pidfd, int signal) {
    return syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

int wa_reap_pidfd(int pidfd, struct wa_exit *out) {
    siginfo_t info;
    struct rusage usage;
    memset(&info, 0, sizeof info);
    memset(&usage, 0, sizeof usage);
    // The raw system call: unlike the C function it returns the resource usage too.
    long rc;
    do {
        rc = syscall(SYS_waitid, P_PIDFD, pidfd, &info, WEXITED | WNOHANG, &usage);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0) return -errno;
    if (info.si_pid == 0) return 0;
    out->pid = info.si_pid;
    out->signaled = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    out->core_dumped = info.si_code == CLD_DUMPED;
    out->status = info.si_status;
    out->user_us = (int64_t)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
    out->system_us = (int64_t)usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec;
    out->max_rss_bytes = (int64_t)usage.ru_maxrss * 1024;
    return 1;
}

pid_t wa_peek_exited_child(void) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return 0;
    return info.si_pid;
}

int wa_reap_pid(pid_t pid) { return waitpid(pid, NULL, WNOHANG) == pid ? 1 : 0; }

int wa_set_child_subreaper(bool on) {
    return prctl(PR_SET_CHILD_SUBREAPER, on ? 1 : 0, 0, 0, 0) < 0 ? -errno : 0;
}

int wa_open_terminal(uint16_t rows, uint16_t columns, int fds[2]) {
    int ours = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (ours < 0) return -errno;
    int locked = 0;
    int theirs = -1;
    // By number instead of by name: whatever is mounted on /dev/pts here may be another one's.
    if (ioctl(ours, TIOCSPTLCK, &locked) == 0) theirs = ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (theirs < 0) {
        int error = errno;
        close(ours);
        return -error;
    }
    wa_resize_terminal(ours, rows, columns);
    // Backspace is to take a whole character.
    struct termios settings;
    if (tcgetattr(theirs, &settings) == 0) {
        settings.c_iflag |= IUTF8;
        tcsetattr(theirs, TCSANOW, &settings);
    }
    fds[0] = ours;
    fds[1] = theirs;
    return 0;
}

int wa_resize_terminal(int fd, uint16_t rows, uint16_t columns) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    return ioctl(fd, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}
