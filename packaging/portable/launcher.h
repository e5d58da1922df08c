#pragma once
#include <stddef.h>
#include <stdio.h>

/// The loader's file in lib/; set by scripts/portable.sh.
#ifndef LOADER
#error "LOADER is not set"
#endif

/// Stands for the first letter of a variable LD_…, which no shell can name so; wa_hide_loader changes it back.
#define HIDDEN_VARIABLE '@'

#define complain(...) (fprintf(stderr, "workspace-agent: " __VA_ARGS__), fputc('\n', stderr))

/// The path of the running executable, links followed. -1 after a complaint.
int own_path(char *path, size_t size);

/// Cuts off the last component; -1 when there is none.
int parent(char *path);

/// Replaces this process by the program of a bundle. Returns -1, with errno. Changes `envp`.
int start_bundle(const char *directory, int argc, char **argv, char **envp);
