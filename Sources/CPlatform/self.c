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
#include <sys/prctl.h>
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

void wa_hide_loader(const char *name) {
    // Of the same length, so that the kernel shows them as they were, too (packaging/portable/launcher.c).
    for (char **entry = environ; *entry != NULL; entry++)
        if (strncmp(*entry, "@D_", 3) == 0) **entry = 'L';
    prctl(PR_SET_NAME, name, 0, 0, 0);
    // Fields 48 and 49 of stat(5), after the name, which may have any character in it.
    char text[2048];
    FILE *file = fopen("/proc/self/stat", "re");
    size_t count = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    if (file != NULL) fclose(file);
    text[count] = 0;
    char *field = strrchr(text, ')');
    for (int number = 2; field != NULL && number < 48; number++) field = strchr(field + 1, ' ');
    unsigned long start, end;
    if (field == NULL || sscanf(field, " %lu %lu", &start, &end) != 2 || start == 0 || end <= start) return;
    char *first = (char *)start, *last = (char *)end, *word = first;
    // LOADER --argv0 NAME --library-path DIRECTORY PROGRAM ARGUMENTS
    char *words[6];
    for (int index = 0; index < 6; index++) {
        words[index] = word;
        word = memchr(word, 0, (size_t)(last - word));
        if (word == NULL || ++word >= last + 1) return;
    }
    if (strcmp(words[1], "--argv0") != 0 || strcmp(words[3], "--library-path") != 0) return;
    size_t length = strlen(words[2]) + 1;
    memmove(first, words[2], length);
    memmove(first + length, word, (size_t)(last - word));
    char *rest = first + length + (last - word);
    memset(rest, 0, (size_t)(last - rest));
}
