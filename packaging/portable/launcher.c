// Starts the program of a portable bundle with the loader and the libraries beside it, on any Linux image.
//
//   bin/workspace-agent    this, static
//   lib/                   the loader, the libraries, the program
//
// The loader is told the library path in its arguments, so that nothing of it reaches the environment of what the program
// starts. The image's own LD_PRELOAD and its like name libraries for the image's C library, with which this loader cannot
// start; they are for what the program starts, so they pass it under names that it changes back (wa_hide_loader). The program finds its bundle by /proc/self/exe, which is the loader.
#include "launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int own_path(char *path, size_t size) {
    ssize_t count = readlink("/proc/self/exe", path, size - 1);
    if (count < 0) {
        complain("cannot find its own files: /proc is not mounted; mount it (mount -t proc proc /proc)");
        return -1;
    }
    path[count] = 0;
    return 0;
}

int parent(char *path) {
    char *slash = strrchr(path, '/');
    if (slash == NULL) return -1;
    *slash = 0;
    return 0;
}

int start_bundle(const char *directory, int argc, char **argv, char **envp) {
    char loader[PATH_MAX], library[PATH_MAX], program[PATH_MAX];
    if (snprintf(library, sizeof library, "%s/lib", directory) >= (int)sizeof library ||
        snprintf(loader, sizeof loader, "%s/lib/" LOADER, directory) >= (int)sizeof loader ||
        snprintf(program, sizeof program, "%s/lib/workspace-agent", directory) >= (int)sizeof program) {
        errno = ENAMETOOLONG;
        return -1;
    }
    char **words = calloc((size_t)argc + 7, sizeof *words);
    if (words == NULL) return -1;
    words[0] = loader;
    words[1] = "--argv0";
    words[2] = argc > 0 ? argv[0] : "workspace-agent";
    words[3] = "--library-path";
    words[4] = library;
    words[5] = program;
    for (int index = 1; index < argc; index++) words[5 + index] = argv[index];
    for (char **entry = envp; *entry != NULL; entry++)
        if (strncmp(*entry, "LD_", 3) == 0) **entry = HIDDEN_VARIABLE;
    execve(loader, words, envp);
    int code = errno;
    free(words);
    errno = code;
    return -1;
}

#ifndef SINGLE_FILE
int main(int argc, char **argv, char **envp) {
    char path[PATH_MAX];
    if (own_path(path, sizeof path) != 0) return 127;
    if (parent(path) != 0 || parent(path) != 0) {
        complain("%s is not in a bundle", path);
        return 127;
    }
    start_bundle(path, argc, argv, envp);
    if (errno == ENOENT)
        complain("%s/lib/" LOADER " is missing; link to bin/workspace-agent in its bundle instead of copying it", path);
    else
        complain("cannot start %s/lib/" LOADER ": %s", path, strerror(errno));
    return 127;
}
#endif
