/* Preloaded into a node: its time of day is wrong by what a test says; its monotonic clock is right.
 *
 * CLOCK_FILE: a file of 8 bytes, the error in ns as a signed integer of this machine. It is mapped, so that a change
 * counts from the next look at the clock on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000LL

static const volatile int64_t *error_ns;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (fd < 0) return;
    void *place = mmap(NULL, sizeof *error_ns, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (place != MAP_FAILED) error_ns = place;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_gettime) begin();
    int result = real_gettime(clock, at);
    if (!result && error_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = at->tv_sec * NS + at->tv_nsec + *error_ns;
        at->tv_sec = ns / NS;
        at->tv_nsec = ns % NS;
    }
    return result;
}

int gettimeofday(struct timeval *at, void *zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
