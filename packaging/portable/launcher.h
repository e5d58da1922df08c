#pragma once
#include <stddef.h>
#include <stdio.h>

/// The loader's file in lib/; set by scripts/portable.sh.
#ifndef LOADER
#error "LOADER is not set"
#endif

#define complain(...) (fprintf(stderr, "workspace-agent: " __VA_ARGS__), fputc('\n', stderr))

/// The path of the running executable, links followed. -1 after a complaint.
int own_path(char *path, size_t size);

/// Cuts off the last component; -1 when there is none.
int parent(char *path);

/// Replaces this process by the program of a bundle. Returns -1, with errno.
int start_bundle(const char *directory, int argc, char **argv, char **envp);
