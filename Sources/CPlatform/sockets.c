#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "include/CPlatform.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

size_t wa_unix_path_max(void) { return sizeof(((struct sockaddr_un *)0)->sun_path) - 1; }

static int make_address(const char *path, struct sockaddr_un *address, socklen_t *length) {
    size_t count = strlen(path);
    if (count > wa_unix_path_max()) return -ENAMETOOLONG;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, count);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + count + 1);
    return 0;
}

int wa_unix_listen(const char *path, unsigned mode, int backlog) {
    struct sockaddr_un address;
    socklen_t length;
    int rc = make_address(path, &address, &length);
    if (rc < 0) return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    // On Linux bind() creates the file with the socket's own mode (less the umask), so there is
    // no moment in which it is wider than asked.
    if (fchmod(fd, (mode_t)mode) < 0 || bind(fd, (struct sockaddr *)&address, length) < 0)
        goto failed;
    // Puts back what the umask took; no client can connect before listen().
    if (chmod(path, (mode_t)mode) < 0 || listen(fd, backlog) < 0) goto failed;
    return fd;
failed:
    rc = -errno;
    close(fd);
    return rc;
}

int wa_unix_probe(const char *path) {
    pid_t pid;
    uid_t uid;
    return wa_unix_server(path, &pid, &uid);
}

int wa_unix_server(const char *path, pid_t *pid, uid_t *uid) {
    *pid = 0;
    *uid = 0;
    struct sockaddr_un address;
    socklen_t length;
    int rc = make_address(path, &address, &length);
    if (rc < 0) return rc;
    // Not blocking: a listener with a full backlog answers EAGAIN, so it is alive.
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    rc = connect(fd, (struct sockaddr *)&address, length) < 0 ? -errno : 0;
    gid_t gid;
    if (rc == 0 && wa_peer_credentials(fd, pid, uid, &gid) < 0) *pid = 0;
    close(fd);
    return rc == -EAGAIN ? 0 : rc;
}

int wa_listening_port(int fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) < 0) return -errno;
    struct sockaddr_storage address;
    length = sizeof address;
    if (!listens || getsockname(fd, (struct sockaddr *)&address, &length) < 0) return 0;
    if (address.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return 0;
}

int wa_peer_credentials(int fd, pid_t *pid, uid_t *uid, gid_t *gid) {
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0) return -errno;
    *pid = credentials.pid;
    *uid = credentials.uid;
    *gid = credentials.gid;
    return 0;
}

int wa_notify(const char *socket_path, const char *message, bool may_wait) {
    struct sockaddr_un address;
    socklen_t length;
    int rc = make_address(socket_path, &address, &length);
    if (rc < 0) return rc;
    if (address.sun_path[0] == '@') {
        address.sun_path[0] = '\0';
        length -= 1; // an abstract name is not NUL-terminated
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    ssize_t sent = sendto(
        fd, message, strlen(message), MSG_NOSIGNAL | (may_wait ? 0 : MSG_DONTWAIT), (struct sockaddr *)&address, length
    );
    rc = sent < 0 ? -errno : 0;
    close(fd);
    return rc;
}

int wa_socket_family(int fd) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0) return -errno;
    return address.ss_family;
}

int wa_unsent_bytes(int fd) {
    int count = 0;
    return ioctl(fd, SIOCOUTQ, &count) < 0 ? -errno : count;
}

bool wa_socket_is_wildcard(int fd) {
    struct sockaddr_storage storage;
    socklen_t length = sizeof storage;
    if (getsockname(fd, (struct sockaddr *)&storage, &length) < 0) return true;
    if (storage.ss_family == AF_INET)
        return ((struct sockaddr_in *)&storage)->sin_addr.s_addr == htonl(INADDR_ANY);
    if (storage.ss_family != AF_INET6) return false;
    const struct in6_addr *address = &((struct sockaddr_in6 *)&storage)->sin6_addr;
    static const unsigned char mapped_any[16] = {[10] = 0xff, [11] = 0xff};
    return IN6_IS_ADDR_UNSPECIFIED(address) || memcmp(address, mapped_any, sizeof mapped_any) == 0;
}

int wa_udp_open(int family, uint16_t port, bool forbid_fragments, int buffer_bytes) {
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -errno;
    int one = 1;
    struct sockaddr_storage storage = {0};
    socklen_t length;
    // What cannot be set costs speed, not function. With CAP_NET_ADMIN there is no limit.
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) < 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes) < 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    if (family == AF_INET6) {
        int probe = IPV6_PMTUDISC_PROBE;
        if (forbid_fragments) setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
        if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0) goto failed;
        struct sockaddr_in6 *address = (struct sockaddr_in6 *)&storage;
        address->sin6_family = AF_INET6;
        address->sin6_port = htons(port);
        length = sizeof *address;
    } else {
        // The fragments bit is set, and the kernel does not lower what it takes by what routers say.
        int probe = IP_PMTUDISC_PROBE;
        if (forbid_fragments) setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
        struct sockaddr_in *address = (struct sockaddr_in *)&storage;
        address->sin_family = AF_INET;
        address->sin_port = htons(port);
        length = sizeof *address;
    }
    if (bind(fd, (struct sockaddr *)&storage, length) < 0) goto failed;
    return fd;
failed:;
    int problem = -errno;
    close(fd);
    return problem;
}

int wa_socket_port(int fd) {
    struct sockaddr_storage storage;
    socklen_t length = sizeof storage;
    if (getsockname(fd, (struct sockaddr *)&storage, &length) < 0) return -errno;
    if (storage.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&storage)->sin_port);
    if (storage.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&storage)->sin6_port);
    return -EAFNOSUPPORT;
}

int wa_udp_send(
    int fd, const void *address, uint32_t length, const void *bytes, size_t count, uint16_t segment
) {
    struct iovec vector = {(void *)bytes, count};
    union {
        char bytes[CMSG_SPACE(sizeof segment)];
        struct cmsghdr alignment;
    } control = {0};
    struct msghdr message = {
        .msg_name = (void *)address, .msg_namelen = length, .msg_iov = &vector, .msg_iovlen = 1};
    if (segment > 0 && segment < count) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_UDP;
        header->cmsg_type = 103; // UDP_SEGMENT
        header->cmsg_len = CMSG_LEN(sizeof segment);
        memcpy(CMSG_DATA(header), &segment, sizeof segment);
    }
    ssize_t sent;
    do sent = sendmsg(fd, &message, MSG_NOSIGNAL); while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}
