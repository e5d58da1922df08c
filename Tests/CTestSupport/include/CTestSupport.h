// What tests need of the kernel and Swift cannot call.
#ifndef CTESTSUPPORT_H
#define CTESTSUPPORT_H

/// Has the kernel answer clone3 of this thread and its children with an error, as the seccomp profiles of containers do. It cannot
/// be taken back.
/// Returns 0, or an errno.
int test_refuse_clone3(int error);

/// Exchanges two paths at once. Returns 0, or an errno.
int test_exchange(const char *a, const char *b);

/// Takes the rights of an ordinary user from this thread alone, for good. Returns 0, or an errno.
int test_become_user(unsigned id);

#endif
