// What Swift cannot call itself: variadic functions, packed structs, headers that the Glibc module
// leaves out, and code that must run between vfork and execve. Every function returns 0 or a
// non-negative value on success and -errno on failure unless its comment says otherwise.
#ifndef WORKSPACE_AGENT_CPLATFORM_H
#define WORKSPACE_AGENT_CPLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

// --- Processes ---------------------------------------------------------------------------------

/// Where a start failed; decides which error the caller gets.
enum wa_spawn_stage {
    WA_SPAWN_OK = 0,
    WA_SPAWN_FORK = 1,  ///< the kernel refused a new process
    WA_SPAWN_SETUP = 2, ///< session or descriptors could not be set up
    WA_SPAWN_CHDIR = 3, ///< the working directory could not be entered
    WA_SPAWN_EXEC = 4,  ///< the program could not be executed
};

struct wa_spawn_options {
    const char *path;      ///< program, used as it is (no PATH search)
    char *const *argv;     ///< NULL-terminated
    char *const *envp;     ///< NULL-terminated
    const char *workdir;   ///< NULL keeps the caller's
    int stdin_fd;          ///< becomes 0 of the child
    int stdout_fd;         ///< becomes 1
    int stderr_fd;         ///< becomes 2
    bool set_priority;     ///< apply nice_increment and oom_score_adj
    int nice_increment;    ///< added to the caller's niceness
    int oom_score_adj;     ///< -1000...1000
    uint64_t nofile_soft;  ///< soft RLIMIT_NOFILE of the child; 0 keeps the caller's
    int file_mask;         ///< umask of the child; -1 keeps the caller's
    bool terminal;         ///< stdin_fd is a terminal, which becomes the session's controlling one
};

struct wa_spawn_result {
    pid_t pid;   ///< -1 on failure
    int pidfd;   ///< close-on-exec; -1 on failure
    int stage; ///< enum wa_spawn_stage
    int error; ///< errno of the failed stage
    int nice_error; ///< errno of a refused niceness, 0 when applied
    int oom_error;  ///< errno of a refused oom_score_adj, 0 when applied
};

/// Starts a program as the leader of a session of its own, with default signal dispositions, an
/// empty signal mask and no descriptor above 2. Everything, priorities included, is in force
/// before the program's first instruction. Blocks until the program was executed or refused.
void wa_spawn(const struct wa_spawn_options *options, struct wa_spawn_result *result);
/// As wa_spawn, without a pidfd; the program is killed when the calling thread ends, so that it never outlives this process.
void wa_spawn_bound(const struct wa_spawn_options *options, struct wa_spawn_result *result);

/// Starts a program in the place of this command: same terminal, session, stdin and stdout; stderr is given. Signals that
/// ask this process to end go to it, and it gets SIGTERM when this process is killed. One at a time. The pid, or -errno.
pid_t wa_start_foreground(const char *path, char *const *argv, char *const *envp, int stderr_fd);
/// Waits for it: its exit code, 128 and the number of the signal that ended it, or -errno.
int wa_wait_foreground(pid_t pid);

/// A new terminal: fds[0] is our end, which does not block, fds[1] the program's; both close-on-exec.
int wa_open_terminal(uint16_t rows, uint16_t columns, int fds[2]);
int wa_resize_terminal(int fd, uint16_t rows, uint16_t columns);

int wa_pidfd_open(pid_t pid);
int wa_pidfd_send_signal(int pidfd, int signal);

struct wa_exit {
    pid_t pid;
    bool signaled;  ///< died by a signal; status is its number
    bool core_dumped;
    int status;     ///< exit code or signal number
    int64_t user_us;
    int64_t system_us;
    int64_t max_rss_bytes;
};

/// Reaps the child behind a pidfd without waiting. 1 when it was reaped, 0 when it still runs.
int wa_reap_pidfd(int pidfd, struct wa_exit *out);
/// Looks for any exited child without reaping it: its pid, or 0 when there is none.
pid_t wa_peek_exited_child(void);
/// Reaps one child by pid without waiting. 1 when it was reaped, 0 otherwise.
int wa_reap_pid(pid_t pid);
int wa_set_child_subreaper(bool on);

// --- Descriptors -------------------------------------------------------------------------------

/// A close-on-exec pipe whose read end does not block; fds[0] reads, fds[1] writes.
int wa_pipe(int fds[2]);
/// The same whose write end does not block instead.
int wa_input_pipe(int fds[2]);
int wa_set_pipe_size(int fd, int bytes);
/// Bytes that a read would return now.
int wa_readable_bytes(int fd);
/// A close-on-exec file in memory, mode 0600, or -errno.
int wa_memfd(const char *name);
/// Opens with O_CLOEXEC added to flags.
int wa_open(const char *path, int flags, unsigned mode);
/// As wa_open, relative to a directory.
int wa_openat(int directory, const char *name, int flags, unsigned mode);
/// A directory as the base of other calls: needs no permission to read it.
int wa_open_directory(const char *path);
/// renameat2 without replacing what is there; -EEXIST when something is.
int wa_rename_new(const char *from, const char *to);
/// Reads entries of an open directory as the kernel has them (struct linux_dirent64 of getdents64(2)): the bytes
/// they take, 0 at the end, or -errno.
ssize_t wa_read_entries(int directory, void *buffer, size_t count);
enum { WA_O_PATH = 010000000 }; ///< O_PATH, which the Glibc module leaves out
/// Opens a path below a directory, with O_CLOEXEC added to flags. The path must be relative and without `..`; a
/// symbolic link anywhere in it, the last component included, is -ELOOP (or -ENOTDIR), whatever happens meanwhile.
/// walk: component by component, which is done anyway where the kernel has no openat2 (before Linux 5.6).
int wa_open_beneath(int directory, const char *path, int flags, unsigned mode, bool walk);
int wa_set_cloexec(int fd);
int wa_set_nonblocking(int fd);
/// When a file was made, in seconds since 1970; -errno where the file system does not record it. A
/// symbolic link is not followed.
int64_t wa_birth_time(const char *path);
/// The bytes read (0 at the end of the stream), or -errno.
ssize_t wa_read(int fd, void *buffer, size_t count);
/// Reads at an offset what the kernel has in memory, without ever waiting for a disk: the bytes read (0 at the end), or
/// -errno: -EAGAIN when they are not in memory, -EOPNOTSUPP where the file system or kernel cannot tell.
ssize_t wa_read_cached(int fd, void *buffer, size_t count, int64_t offset);
/// Has the kernel begin to write these bytes of a file to the disk. A hint: what fails shows at the next fdatasync.
void wa_begin_writeback(int fd, int64_t offset, int64_t count);
/// Takes room on the disk for a file of that size, whose size stays: 0 or -errno, -EOPNOTSUPP where there is no such call.
int wa_reserve(int fd, int64_t size);
/// Copies bytes from an offset of one file to the same of another, at most `count`, perhaps fewer: how many (0 at the
/// end), or -errno.
ssize_t wa_copy_piece(int from, int to, int64_t offset, size_t count);
/// The bytes written, or -errno.
ssize_t wa_write(int fd, const void *bytes, size_t count);

// --- epoll, eventfd, signalfd ------------------------------------------------------------------

struct wa_event {
    uint32_t events;
    uint64_t token;
};

enum { WA_EPOLLIN = 0x001, WA_EPOLLPRI = 0x002, WA_EPOLLOUT = 0x004, WA_EPOLLERR = 0x008, WA_EPOLLHUP = 0x010 };

int wa_epoll_create(void);
int wa_epoll_add(int epfd, int fd, uint32_t events, uint64_t token);
int wa_epoll_remove(int epfd, int fd);
int wa_epoll_wait(int epfd, struct wa_event *events, int capacity, int timeout_ms);
int wa_eventfd(void);
void wa_eventfd_signal(int fd);
void wa_eventfd_drain(int fd);

/// Blocks the signals in the calling thread (call before any other thread starts).
int wa_block_signals(const int *signals, int count);
/// A non-blocking descriptor that delivers blocked signals.
int wa_signalfd(const int *signals, int count);
/// The number of the next pending signal, or 0.
int wa_signalfd_next(int fd);
void wa_ignore_sigpipe(void);
/// Whether the signal is ignored, as nohup and shells set it for what they start in the background.
bool wa_signal_is_ignored(int signal);

// --- inotify -----------------------------------------------------------------------------------

enum wa_file_change {
    WA_FILE_MODIFIED = 0, ///< content, mode, times and so on
    WA_FILE_CREATED = 1,
    WA_FILE_DELETED = 2,
    WA_FILE_LEFT = 3, ///< renamed from here
    WA_FILE_CAME = 4, ///< renamed to here
};

struct wa_file_event {
    int watch;       ///< -1 with overflow
    bool overflow;   ///< events were lost
    bool gone;       ///< the watch was removed
    bool itself;     ///< the watched directory itself was deleted or moved
    bool directory;  ///< the named entry is a directory
    bool entries;    ///< an entry was added or removed
    int change;      ///< enum wa_file_change
    uint32_t cookie; ///< the same for both halves of a rename
    const char *name; ///< inside the parsed bytes
    size_t name_length;
};

/// A non-blocking inotify descriptor.
int wa_inotify(void);
/// Watches a directory (not a symbolic link to one) for changes of its entries and their content.
int wa_inotify_watch(int fd, const char *directory);
/// Watches a directory, or what a symbolic link to one leads to, for new entries.
int wa_inotify_watch_entries(int fd, const char *directory);
/// Watches a directory (not a symbolic link to one) for each of the changes above.
int wa_inotify_watch_changes(int fd, const char *directory);
void wa_inotify_unwatch(int fd, int watch);
/// Reads the first event of what a read returned; the bytes it took, 0 when there is none.
size_t wa_inotify_parse(const void *bytes, size_t count, struct wa_file_event *event);

// --- Unix sockets ------------------------------------------------------------------------------

/// A listening stream socket whose file has the mode from its first moment.
int wa_unix_listen(const char *path, unsigned mode, int backlog);
/// 0 when something accepts connections at path, else -errno (-ECONNREFUSED: no process listens).
int wa_unix_probe(const char *path);
/// As wa_unix_probe, and who listens; pid is 0 where the kernel does not say: in another pid namespace, or with a full
/// backlog.
int wa_unix_server(const char *path, pid_t *pid, uid_t *uid);
/// Longest path, in bytes, that a unix socket address holds.
size_t wa_unix_path_max(void);
/// The TCP port on which a socket listens; 0 for another socket, -errno for what is not a socket.
int wa_listening_port(int fd);
int wa_peer_credentials(int fd, pid_t *pid, uid_t *uid, gid_t *gid);
/// Sends one datagram to a systemd notification socket (a leading '@' names an abstract one).
/// Without may_wait it is not sent while that socket's queue is full.
int wa_notify(const char *socket_path, const char *message, bool may_wait);
/// A connected pair of close-on-exec stream sockets.
int wa_socketpair(int fds[2]);
/// The AF_ constant of a socket, or -errno.
int wa_socket_family(int fd);
/// Bytes that were written to a stream socket and that the peer (over TCP: its kernel) has not got yet, or -errno.
int wa_unsent_bytes(int fd);
/// Whether a TCP socket is bound to every address, an IPv4 one inside IPv6 included.
bool wa_socket_is_wildcard(int fd);
/// A UDP socket of AF_INET or AF_INET6 (that one for IPv6 alone), bound to every address: non-blocking and
/// close-on-exec, with kernel buffers as near to buffer_bytes as the system allows. Port 0 lets the kernel choose.
/// The descriptor, or -errno.
int wa_udp_open(int family, uint16_t port, bool forbid_fragments, int buffer_bytes);
/// The port that a socket is bound to, or -errno.
int wa_socket_port(int fd);
/// Sends datagrams that lie one behind the other, each of `segment` bytes but the last one, which may be shorter; 0 for
/// a single one. The address is a sockaddr. 0 or -errno: all of them or none.
int wa_udp_send(
    int fd, const void *address, uint32_t length, const void *bytes, size_t count, uint16_t segment);

// --- Bytes -------------------------------------------------------------------------------------

/// Where the needle begins first, in time in proportion to the bytes; NULL when it is not there.
const void *wa_find(const void *bytes, size_t count, const void *needle, size_t length);
/// The last such byte; NULL when there is none.
const void *wa_find_last(const void *bytes, size_t count, uint8_t byte);
/// How many such bytes there are.
size_t wa_count(const uint8_t *bytes, size_t count, uint8_t byte);

// --- The process itself ------------------------------------------------------------------------

char **wa_environ(void);
/// The C streams, which Swift takes for mutable globals.
FILE *wa_stdout(void);
FILE *wa_stderr(void);
/// The C library's text for an errno, always NUL-terminated.
void wa_strerror(int number, char *buffer, size_t capacity);
/// Raises the soft RLIMIT_NOFILE to the hard one; returns the former soft limit, 0 on failure.
uint64_t wa_raise_nofile(void);
/// Names the calling thread (at most 15 bytes are kept).
void wa_name_thread(const char *name);
/// In a program that a loader was asked to run (LOADER --argv0 NAME --library-path DIRECTORY PROGRAM …): has the kernel show
/// the command line without the loader's part, and this name of the process, and gives the variables LD_…, which the launcher
/// hid from that loader, their names back. The C strings of `argv` and `environ` change; call it after the former were
/// copied and before the latter are read. Leaves another command line as it is.
void wa_hide_loader(const char *name);
/// Keeps the allocator from creating an arena for each thread.
void wa_limit_malloc_arenas(int arenas);
/// Gives back memory that may not be needed again: free pages of the heap, and the mapped parts of program and
/// libraries, which the kernel reads from the file (or the page cache) again when they are used.
void wa_release_memory(void);
/// Limits address space and private writable memory (bytes) of this process and its children, and
/// No file gets this process's memory when it dies, nor that of programs which it starts.
void wa_forbid_core_dumps(void);
/// Neither a core dump, whatever takes those, nor another process of this user gets at this process's memory.
void wa_hide_memory(void);
/// turns core dumps off.
void wa_limit_memory(uint64_t address_space, uint64_t data);

#endif
