// Preloaded into a process, it moves the process's clock by SKEW_S seconds; durations stay what they are.
#include <sys/syscall.h>
#include <sys/time.h>
#include <ctime>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t clock, struct timespec* at) {
    const long result = syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += SKEW_S;
    return static_cast<int>(result);
}

extern "C" int gettimeofday(struct timeval* at, void*) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

extern "C" time_t time(time_t* at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
