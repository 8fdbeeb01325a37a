/*
 * A disk that fails on command, for one process: loaded before libc, it acts on the files whose path
 * begins with DISK_PREFIX, and on the folder that they are in. A "-shm" is left alone: it is shared
 * memory, and nobody expects it to survive.
 *
 * DISK_CONTROL names a file that says what fails, as "KIND N SUFFIX". It is read again at every call,
 * and new words begin a new count. N counts the changes (writes, truncations, new files, renames) or
 * the syncs of the files whose path ends with SUFFIX; "*" is every file. A truncation needs no room,
 * so ENOSPC passes it by.
 *
 *   none       nothing
 *   full       the N-th change fails with ENOSPC
 *   full-on    the N-th and every later change fails with ENOSPC
 *   torn       the N-th change writes half of its bytes, and the next fails with ENOSPC
 *   eio        the N-th change fails with EIO
 *   sync-drop  the N-th sync fails with EIO, and what it should have synced is gone at once
 *   sync-lie   the N-th sync fails with EIO, and what it should have synced can be read until the
 *              power is cut, but is on no disk, whatever later syncs say
 *   cut        the process is killed before the N-th change
 *   cut-sync   the process is killed before the N-th sync
 *   deaf       from the N-th on, a sync reports success and does nothing
 *
 * DISK_JOURNAL names a file that gets an entry before each change, with the bytes that it replaces,
 * and one after each sync. So whoever reads it can cut the power: undo what was never synced. No
 * sync reaches the real disk. DISK_KEPT names a folder for hard links to files that were removed.
 * DISK_FAULTS names a file that gets a line for each fault.
 *
 * The calls that are watched are those that SQLite and Rust's std make. mmap, writev and dup are not
 * among them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FDS_MAX 4096
#define CONTROL_BYTES_MAX 128

enum { WRITTEN = 1, TRUNCATED, SYNCED, DROPPED, DOOMED, CREATED, REMOVED, RENAMED, FOLDER_SYNCED };
enum call { CHANGE, SYNC };
enum fate { PASS, FAIL, HALF, DEAF };

/* As the journal has it: the head, then `length` bytes, replaced bytes or paths. */
struct head {
    uint64_t what, inode, offset, size_before, extent, length;
};

/* A change that was not synced, kept in memory for sync-drop. */
struct pending {
    struct pending *earlier;
    struct head head;
    char bytes[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *prefix, *kept;
static char folder[PATH_MAX];
static int control, journal, faults;
static char *watched[FDS_MAX]; /* the path of each watched file or folder */
static struct pending *newest;
static unsigned removed;

static char words[CONTROL_BYTES_MAX], kind[32], suffix[64];
static long nth, changes, syncs;

static void die(const char *why)
{
    dprintf(STDERR_FILENO, "disk shim: %s: %s\n", why, strerror(errno));
    abort();
}

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        die(name);
    return value;
}

static int open_beside(const char *name, int flags)
{
    int fd = syscall(SYS_openat, AT_FDCWD, setting(name), flags | O_CLOEXEC, 0600);
    if (fd < 0)
        die(name);
    return fd;
}

__attribute__((constructor)) static void start(void)
{
    prefix = setting("DISK_PREFIX");
    kept = setting("DISK_KEPT");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(prefix, '/') - prefix), prefix);
    control = open_beside("DISK_CONTROL", O_RDONLY);
    journal = open_beside("DISK_JOURNAL", O_WRONLY | O_CREAT | O_APPEND);
    faults = open_beside("DISK_FAULTS", O_WRONLY | O_CREAT | O_APPEND);
}

/* What fails. */

static int ends_with(const char *text, const char *end)
{
    size_t text_length = strlen(text), end_length = strlen(end);
    return text_length >= end_length && !strcmp(text + text_length - end_length, end);
}

static void read_control(void)
{
    char now[CONTROL_BYTES_MAX] = "";
    if (syscall(SYS_pread64, control, now, sizeof now - 1, 0L) < 0)
        die("control");
    if (!strcmp(now, words))
        return;
    strcpy(words, now);
    changes = syncs = 0;
    if (sscanf(words, "%31s %ld %63s", kind, &nth, suffix) != 3)
        strcpy(kind, "none");
}

static void tell(const char *what, const char *path)
{
    dprintf(faults, "%s %ld: %s of %s\n", kind, nth, what, path + strlen(folder));
}

static enum fate fail(int error, const char *what, const char *path)
{
    tell(what, path);
    errno = error;
    return FAIL;
}

static enum fate fate_of_change(const char *what, const char *path)
{
    int needs_room = strcmp(what, "truncation");
    if (!needs_room && (!strncmp(kind, "full", 4) || !strcmp(kind, "torn")))
        return PASS;
    long n = ++changes;
    if (!strcmp(kind, "full-on") && n >= nth)
        return fail(ENOSPC, what, path);
    if (!strcmp(kind, "torn") && n == nth + 1)
        return fail(ENOSPC, what, path);
    if (n != nth)
        return PASS;
    if (!strcmp(kind, "full"))
        return fail(ENOSPC, what, path);
    if (!strcmp(kind, "eio"))
        return fail(EIO, what, path);
    if (!strcmp(kind, "torn"))
        return HALF;
    if (!strcmp(kind, "cut")) {
        tell(what, path);
        kill(getpid(), SIGKILL);
    }
    return PASS;
}

static enum fate fate_of_sync(const char *path)
{
    long n = ++syncs;
    if (!strcmp(kind, "deaf") && n >= nth) {
        tell("sync", path);
        return DEAF;
    }
    if (n != nth)
        return PASS;
    if (!strcmp(kind, "sync-drop") || !strcmp(kind, "sync-lie"))
        return fail(EIO, "sync", path);
    if (!strcmp(kind, "cut-sync")) {
        tell("sync", path);
        kill(getpid(), SIGKILL);
    }
    return PASS;
}

static enum fate fate_of(enum call call, const char *what, const char *path)
{
    read_control();
    if (strcmp(suffix, "*") && !ends_with(path, suffix))
        return PASS;
    return call == SYNC ? fate_of_sync(path) : fate_of_change(what, path);
}

/* What can be undone. */

static void append(const void *bytes, size_t length)
{
    if (syscall(SYS_write, journal, bytes, length) != (long)length)
        die("journal");
}

static void note(uint64_t what, uint64_t inode)
{
    struct head head = {.what = what, .inode = inode};
    append(&head, sizeof head);
}

static void note_paths(uint64_t what, const char *one, const char *two, const char *three)
{
    char entry[sizeof(struct head) + 3 * PATH_MAX];
    int length = snprintf(entry + sizeof(struct head), 3 * PATH_MAX, "%s\n%s\n%s", one, two, three);
    struct head head = {.what = what, .length = length};
    memcpy(entry, &head, sizeof head);
    append(entry, sizeof head + length);
}

static struct stat status(int fd)
{
    struct stat found;
    if (fstat(fd, &found))
        die("fstat");
    return found;
}

/* Before bytes `from` to `until` are replaced, or the file is cut to `from`. */
static void note_bytes(uint64_t what, int fd, uint64_t from, uint64_t until)
{
    struct stat found = status(fd);
    uint64_t size = found.st_size, end = what == TRUNCATED || until > size ? size : until;
    uint64_t length = end > from ? end - from : 0;
    struct pending *change = malloc(sizeof *change + length);
    if (!change)
        die("malloc");
    change->head = (struct head){.what = what, .inode = found.st_ino, .offset = from,
                                 .size_before = size, .extent = until - from, .length = length};
    if (length && syscall(SYS_pread64, fd, change->bytes, length, from) != (long)length)
        die("what is replaced cannot be read");
    append(&change->head, sizeof change->head + length);
    change->earlier = newest;
    newest = change;
}

/* Forgets what is pending of the file, or undoes it first. */
static void end_pending(int fd, int undo)
{
    uint64_t inode = status(fd).st_ino;
    for (struct pending **at = &newest; *at;) {
        struct pending *change = *at;
        if (change->head.inode != inode) {
            at = &change->earlier;
            continue;
        }
        if (undo) {
            syscall(SYS_pwrite64, fd, change->bytes, change->head.length, change->head.offset);
            syscall(SYS_ftruncate, fd, change->head.size_before);
        }
        *at = change->earlier;
        free(change);
    }
}

/* Hard links keep what was removed, and keep its inode from being used again. */
static void keep(const char *path, char *link)
{
    snprintf(link, PATH_MAX, "%s/%u", kept, removed++);
    if (linkat(AT_FDCWD, path, AT_FDCWD, link, 0))
        *link = 0;
}

/* The calls. */

static int is_watched_path(const char *path)
{
    if (!strcmp(path, folder))
        return 1;
    return !strncmp(path, prefix, strlen(prefix)) && !ends_with(path, "-shm");
}

static int is_watched(int fd)
{
    return fd >= 0 && fd < FDS_MAX && watched[fd];
}

static int is_folder(int fd)
{
    return !strcmp(watched[fd], folder);
}

static long leave(long result)
{
    int error = errno;
    pthread_mutex_unlock(&mutex);
    errno = error;
    return result;
}

static int open_at(int at, const char *path, int flags, mode_t mode)
{
    if (!prefix || !is_watched_path(path))
        return syscall(SYS_openat, at, path, flags, mode);
    if (flags & O_TRUNC)
        die("O_TRUNC is not undone");
    pthread_mutex_lock(&mutex);
    if (flags & O_CREAT && faccessat(AT_FDCWD, path, F_OK, 0)) {
        if (fate_of(CHANGE, "creation", path) == FAIL)
            return leave(-1);
        note_paths(CREATED, path, "", "");
    }
    int fd = syscall(SYS_openat, at, path, flags, mode);
    if (fd >= FDS_MAX)
        die("too many files");
    if (fd >= 0)
        watched[fd] = strdup(path);
    return leave(fd);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_at(at, path, flags, mode);
}

int close(int fd)
{
    if (is_watched(fd)) {
        pthread_mutex_lock(&mutex);
        free(watched[fd]);
        watched[fd] = NULL;
        pthread_mutex_unlock(&mutex);
    }
    return syscall(SYS_close, fd);
}

static off_t place_of_write(int fd)
{
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return status(fd).st_size;
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    if (!is_watched(fd))
        return syscall(SYS_write, fd, bytes, length);
    pthread_mutex_lock(&mutex);
    enum fate fate = fate_of(CHANGE, "write", watched[fd]);
    if (fate == FAIL)
        return leave(-1);
    if (fate == HALF)
        length = (length + 1) / 2;
    off_t offset = place_of_write(fd);
    note_bytes(WRITTEN, fd, offset, offset + length);
    return leave(syscall(SYS_write, fd, bytes, length));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    if (!is_watched(fd))
        return syscall(SYS_pwrite64, fd, bytes, length, offset);
    pthread_mutex_lock(&mutex);
    enum fate fate = fate_of(CHANGE, "write", watched[fd]);
    if (fate == FAIL)
        return leave(-1);
    if (fate == HALF)
        length = (length + 1) / 2;
    note_bytes(WRITTEN, fd, offset, offset + length);
    return leave(syscall(SYS_pwrite64, fd, bytes, length, offset));
}

int ftruncate(int fd, off_t size)
{
    if (!is_watched(fd))
        return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&mutex);
    if (fate_of(CHANGE, "truncation", watched[fd]) == FAIL)
        return leave(-1);
    note_bytes(TRUNCATED, fd, size, size);
    return leave(syscall(SYS_ftruncate, fd, size));
}

static void failed_sync(int fd)
{
    int error = errno, drops = !strcmp(kind, "sync-drop");
    if (!is_folder(fd)) {
        end_pending(fd, drops);
        note(drops ? DROPPED : DOOMED, status(fd).st_ino);
    }
    errno = error;
}

int fsync(int fd)
{
    if (!is_watched(fd))
        return syscall(SYS_fsync, fd);
    pthread_mutex_lock(&mutex);
    enum fate fate = fate_of(SYNC, "sync", watched[fd]);
    if (fate == FAIL) {
        failed_sync(fd);
        return leave(-1);
    }
    if (fate == DEAF)
        return leave(0);
    if (!is_folder(fd))
        end_pending(fd, 0);
    note(is_folder(fd) ? FOLDER_SYNCED : SYNCED, status(fd).st_ino);
    return leave(0);
}

int fdatasync(int fd)
{
    return is_watched(fd) ? fsync(fd) : (int)syscall(SYS_fdatasync, fd);
}

int unlink(const char *path)
{
    char link[PATH_MAX];
    if (!prefix || !is_watched_path(path))
        return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    pthread_mutex_lock(&mutex);
    keep(path, link);
    if (*link)
        note_paths(REMOVED, path, link, "");
    return leave(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int rename(const char *from, const char *to)
{
    char link[PATH_MAX];
    if (!prefix || !is_watched_path(to))
        return syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
    pthread_mutex_lock(&mutex);
    if (fate_of(CHANGE, "renaming", to) == FAIL)
        return leave(-1);
    keep(to, link);
    note_paths(RENAMED, from, to, link);
    return leave(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

/* The same calls by their other names. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int openat64(int at, const char *path, int flags, ...) __attribute__((alias("openat")));
ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) __attribute__((alias("pwrite")));
int ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));
