/* A wall clock that is ahead by as many seconds as the file says that SHIFTED_CLOCK names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long ahead(void) {
    const char *path = getenv("SHIFTED_CLOCK");
    FILE *file = path ? fopen(path, "r") : NULL;
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += ahead();
    return failed;
}
