// Sets the wall clock of one process forward: by the seconds in the file that CLOCK_AHEAD names, as eight bytes
// in the machine's order. The file is read each time, so that the clock can be set while the process runs.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int file = -1;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("CLOCK_AHEAD");
    if (path) file = open(path, O_RDONLY | O_CLOEXEC);
}

static int64_t ahead(void) {
    int64_t seconds = 0;
    if (file < 0 || pread(file, &seconds, sizeof seconds, 0) != sizeof seconds) return 0;
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    if (result == 0) now->tv_sec += ahead();
    return result;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
