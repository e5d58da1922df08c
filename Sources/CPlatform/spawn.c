#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

// Milliseconds for which a program that is open for writing is tried again.
enum { WA_SPAWN_BUSY_TRIES = 100 };

// Runs in the vfork child, which shares the parent's memory: only system calls, and only writes
// to `result` and to this frame. vfork rather than posix_spawn, because niceness, the OOM score
// and the descriptor limit have no spawn attribute and must hold before the program starts (a
// child of the program would otherwise inherit the daemon's).
static void run_child(
    const struct wa_spawn_options *o, volatile struct wa_spawn_result *result,
    const char *oom_text, size_t oom_length, bool bound
) {
    result->stage = WA_SPAWN_SETUP;

    if (bound && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) goto failed;

    // The system call itself: the C library refuses to touch the two signals that it keeps for
    // itself, yet an ignored one would be inherited. All zero is SIG_DFL in every layout.
    const unsigned long default_action[8] = {0};
    for (int signal = 1; signal < NSIG; signal++) {
        if (signal != SIGKILL && signal != SIGSTOP)
            syscall(SYS_rt_sigaction, signal, default_action, NULL, (size_t)8);
    }

    if (setsid() < 0) goto failed;

    // A source below 3 would be overwritten by an earlier dup2; the launcher's pipes are above.
    if (dup2(o->stdin_fd, 0) < 0 || dup2(o->stdout_fd, 1) < 0 || dup2(o->stderr_fd, 2) < 0)
        goto failed;

    if (o->set_priority) {
        errno = 0;
        if (nice(o->nice_increment) == -1 && errno != 0) result->nice_error = errno;
        // While a vfork child has not executed, the kernel applies the score to it alone.
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, oom_text, oom_length) < 0) result->oom_error = errno;
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

    syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);

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

__attribute__((noinline)) static void spawn(
    const struct wa_spawn_options *options, struct wa_spawn_result *result, bool bound
) {
    memset(result, 0, sizeof *result);
    char oom_text[16];
    int oom_length = snprintf(oom_text, sizeof oom_text, "%d", options->oom_score_adj);

    // No handler of ours may run in the child while it borrows our memory.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);

    pid_t pid = vfork();
    if (pid == 0) {
        run_child(options, result, oom_text, (size_t)oom_length, bound);
        _exit(127);
    }
    int fork_error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    if (pid < 0) {
        result->pid = -1;
        result->stage = WA_SPAWN_FORK;
        result->error = fork_error;
        return;
    }
    result->pid = pid;
    if (result->error != 0) {
        int status;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        result->pid = -1;
        return;
    }
    result->stage = WA_SPAWN_OK;
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
