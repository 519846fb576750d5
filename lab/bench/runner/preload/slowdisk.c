// Preloaded into a server, this makes every flush of a file to the disk take as much longer as IDEM_BENCH_FLUSH_US says,
// as on a disk that has no cache behind a battery, or one that is reached over a network.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static void wait_longer(void) {
	const char *us = getenv("IDEM_BENCH_FLUSH_US");
	long ns = us ? atol(us) * 1000 : 0;
	struct timespec wait = {ns / 1000000000, ns % 1000000000};
	prctl(PR_SET_TIMERSLACK, 1); // or it would be 50 us more
	nanosleep(&wait, NULL);
}

#define SLOW(name)                                        \
	int name(int fd) {                                    \
		static int (*real)(int);                          \
		if (!real)                                        \
			real = (int (*)(int))dlsym(RTLD_NEXT, #name); \
		wait_longer();                                    \
		return real(fd);                                  \
	}

SLOW(fsync)
SLOW(fdatasync)
