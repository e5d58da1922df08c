#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

static int release_program(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    (void)context;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[index];
        // Written pages are ours alone and would be lost; the others come back from the file.
        if (part->p_type != PT_LOAD || (part->p_flags & PF_W) != 0) continue;
        uintptr_t start = (info->dlpi_addr + part->p_vaddr + page - 1) & ~(page - 1);
        uintptr_t end = (info->dlpi_addr + part->p_vaddr + part->p_filesz) & ~(page - 1);
        if (end > start) madvise((void *)start, end - start, MADV_DONTNEED);
    }
    return 0;
}

void wa_release_memory(void) {
    malloc_trim(0);
    dl_iterate_phdr(release_program, NULL);
}
