#define _GNU_SOURCE
#include "include/CTestSupport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int test_exchange(const char *a, const char *b) {
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) != 0 ? errno : 0;
}

// The C library's call would change all threads.
int test_become_user(unsigned id) { return syscall(SYS_setresuid, id, id, id) != 0 ? errno : 0; }
