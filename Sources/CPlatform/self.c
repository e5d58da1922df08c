#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

char **wa_environ(void) { return environ; }
FILE *wa_stdout(void) { return stdout; }
FILE *wa_stderr(void) { return stderr; }

void wa_strerror(int number, char *buffer, size_t capacity) {
    char scratch[128];
    // The GNU variant may answer with a static string instead of the scratch buffer.
    const char *text = strerror_r(number, scratch, sizeof scratch);
    snprintf(buffer, capacity, "%s", text);
}

uint64_t wa_raise_nofile(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return 0;
    rlim_t before = limit.rlim_cur;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0) return 0;
    }
    return before;
}

void wa_name_thread(const char *name) {
    char kept[16] = {0};
    strncpy(kept, name, sizeof kept - 1);
    pthread_setname_np(pthread_self(), kept);
}

void wa_limit_malloc_arenas(int arenas) { mallopt(M_ARENA_MAX, arenas); }

void wa_trim_heap(void) { malloc_trim(0); }
