/* A clock of one's own: preloaded into a program, it has the program's time of day be ahead by as
 * many seconds as the file E2E_CLOCK says, which is read once a second. Time that only passes
 * (CLOCK_MONOTONIC) stays as it is.
 *
 * Deadlines by the time of day are turned back before they are waited for. Those of
 * pthread_cond_timedwait may be of either clock; a machine is not up for thirty years.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define THIRTY_YEARS 946080000L

static int now(clockid_t clock, struct timespec *at) {
    REAL(clock_gettime);
    return real(clock, at);
}

static long ahead(void) {
    static atomic_long seconds, looked = -1;
    struct timespec at;
    now(CLOCK_MONOTONIC, &at);
    if (atomic_exchange(&looked, at.tv_sec) != at.tv_sec) {
        const char *name = getenv("E2E_CLOCK");
        int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
        char text[32] = {0};
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) seconds = atol(text);
            close(file);
        }
    }
    return seconds;
}

static const struct timespec *back(const struct timespec *deadline, struct timespec *room) {
    if (!deadline || deadline->tv_sec < THIRTY_YEARS) return deadline;
    *room = *deadline;
    room->tv_sec -= ahead();
    return room;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = now(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        at->tv_sec += ahead();
    }
    return failed;
}

int timespec_get(struct timespec *at, int base) {
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, at) ? base : 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    at->tv_sec = exact.tv_sec;
    at->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at) *at = exact.tv_sec;
    return exact.tv_sec;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict deadline) {
    struct timespec room;
    REAL(cnd_timedwait);
    return real(condition, mutex, back(deadline, &room));
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    struct timespec room;
    static __typeof__(pthread_cond_timedwait) *real;
    if (!real) { /* of x86 there are two, and the older one knows no clocks */
        real = (__typeof__(real))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    }
    if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    return real(condition, mutex, back(deadline, &room));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline) {
    struct timespec room;
    REAL(sem_timedwait);
    return real(semaphore, back(deadline, &room));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex,
                            const struct timespec *restrict deadline) {
    struct timespec room;
    REAL(pthread_mutex_timedlock);
    return real(mutex, back(deadline, &room));
}
