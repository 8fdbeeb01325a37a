// The disk of one Postgres, which fails while the first byte of the file that DISK_STATE names says so:
//   f  it is full: what would make a file longer fails with ENOSPC, but for the write-ahead log
//   s  it does not sync the write-ahead log: EIO
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int state_file = -1;

__attribute__((constructor)) static void open_state(void) {
    const char *path = getenv("DISK_STATE");
    if (path) state_file = open(path, O_RDONLY | O_CLOEXEC);
}

static int is_state(char wanted) {
    char state = 0;
    return state_file >= 0 && pread(state_file, &state, 1, 0) == 1 && state == wanted;
}

static int is_log(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/pg_wal/") != NULL;
}

static int is_too_long(int fd, off_t end) {
    struct stat now;
    return is_state('f') && fstat(fd, &now) == 0 && S_ISREG(now.st_mode) && end > now.st_size && !is_log(fd);
}

static int refuse(int why) {
    errno = why;
    return -1;
}

static off_t bytes_of(const struct iovec *parts, int count) {
    off_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += parts[i].iov_len;
    return bytes;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define PWRITE(name)                                                                     \
    ssize_t name(int fd, const void *from, size_t bytes, off_t at) {                     \
        if (is_too_long(fd, at + (off_t)bytes)) return refuse(ENOSPC);                   \
        return REAL(name)(fd, from, bytes, at);                                          \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                                    \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) {               \
        if (is_too_long(fd, at + bytes_of(parts, count))) return refuse(ENOSPC);         \
        return REAL(name)(fd, parts, count, at);                                         \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

// These two answer with the error itself.
#define FALLOCATE(name)                                                                  \
    int name(int fd, off_t at, off_t bytes) {                                            \
        if (is_too_long(fd, at + bytes)) return ENOSPC;                                  \
        return REAL(name)(fd, at, bytes);                                                \
    }
FALLOCATE(posix_fallocate)
FALLOCATE(posix_fallocate64)

#define SYNC(name)                                                                       \
    int name(int fd) {                                                                   \
        if (is_state('s') && is_log(fd)) return refuse(EIO);                             \
        return REAL(name)(fd);                                                           \
    }
SYNC(fsync)
SYNC(fdatasync)
