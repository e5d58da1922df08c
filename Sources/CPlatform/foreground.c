#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// Signals that ask us to end and are the program's to answer.
static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

// Of the program that runs in our place; 0 for none.
static _Atomic pid_t running;

static void pass_on(int signal) {
    const int saved = errno;
    const pid_t pid = atomic_load(&running);
    if (pid > 0) kill(pid, signal);
    errno = saved;
}

pid_t wa_start_foreground(const char *path, char *const *argv, char *const *envp, int stderr_fd) {
    const pid_t parent = getpid();
    sigset_t all, before;
    sigfillset(&all);
    // Blocked until the handlers know whom to pass a signal to.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const pid_t pid = fork();
    if (pid == 0) {
        // Ours may be killed without a chance to pass anything on.
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(127);
        // Git ignores none; what Swift's runtime changed goes back.
        signal(SIGPIPE, SIG_DFL);
        if (dup2(stderr_fd, STDERR_FILENO) < 0) _exit(127);
        sigprocmask(SIG_SETMASK, &before, NULL);
        execve(path, argv, envp);
        static const char start[] = "workspace-agent: cannot run ";
        if (write(STDERR_FILENO, start, sizeof start - 1) > 0 && write(STDERR_FILENO, path, strlen(path)) > 0)
            (void)!write(STDERR_FILENO, "\n", 1);
        _exit(127);
    }
    const int failure = errno;
    if (pid > 0) {
        atomic_store(&running, pid);
        struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
        sigfillset(&action.sa_mask);
        for (int i = 0; i < PASSED_ON; i++) {
            struct sigaction old;
            // One that is ignored (nohup) stays so, here and in the program.
            if (sigaction(passed_on[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
                sigaction(passed_on[i], &action, NULL);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid > 0 ? pid : -failure;
}

int wa_wait_foreground(pid_t pid) {
    // First without reaping it: the number is the program's until then, so that no signal goes astray.
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {}
    // With none to pass it on to, a signal ends us as it would have.
    for (int i = 0; i < PASSED_ON; i++) {
        struct sigaction old;
        if (sigaction(passed_on[i], NULL, &old) == 0 && old.sa_handler == pass_on) signal(passed_on[i], SIG_DFL);
    }
    atomic_store(&running, 0);
    int status = 0;
    pid_t rc;
    while ((rc = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
    if (rc < 0) return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
