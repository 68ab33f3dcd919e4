/* A disk that is full from its N-th write on, for whoever is started with LD_PRELOAD=this and
   FULL_BELOW=folder FULL_FROM=N (counted from 1; 0: never). What was counted is written to FULL_COUNT at the end.
   Build: cc -shared -fPIC -O1 -o failing_disk.so failing_disk.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long counted = 0;

static int below(const char *path) { /* whether a path leads into the folder */
    const char *folder = getenv("FULL_BELOW");
    char whole[PATH_MAX], parent[PATH_MAX];
    if (!folder || !path) return 0;
    strncpy(parent, path, sizeof parent - 1);
    parent[sizeof parent - 1] = 0;
    while (!realpath(parent, whole)) { /* a file that is not there yet lies where its folder lies */
        char *slash = strrchr(parent, '/');
        if (!slash) { if (!realpath(".", whole)) return 0; break; }
        if (slash == parent) return 0;
        *slash = 0;
    }
    size_t n = strlen(folder);
    return strncmp(whole, folder, n) == 0 && (whole[n] == '/' || whole[n] == 0);
}

static int behind(int fd) { /* the same for an open file */
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    char *gone = strstr(path, " (deleted)");
    if (gone) *gone = 0;
    const char *folder = getenv("FULL_BELOW");
    size_t size = folder ? strlen(folder) : 0;
    return folder && strncmp(path, folder, size) == 0 && (path[size] == '/' || path[size] == 0);
}

static int full(void) { /* counts a write; whether the disk refuses it */
    const char *text = getenv("FULL_FROM"), *file = getenv("FULL_COUNT");
    long from = text ? atol(text) : 0;
    counted++;
    if (file) {
        static int (*real_open)(const char *, int, ...) = 0;
        static ssize_t (*real_write)(int, const void *, size_t) = 0;
        if (!real_open) real_open = dlsym(RTLD_NEXT, "open");
        if (!real_write) real_write = dlsym(RTLD_NEXT, "write");
        int fd = real_open(file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        char number[32];
        int n = snprintf(number, sizeof number, "%ld", counted);
        if (fd >= 0) { if (real_write(fd, number, n)) {} close(fd); }
    }
    if (from && counted >= from) { errno = ENOSPC; return 1; }
    return 0;
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__) = 0; if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (behind(fd) && full()) return -1;
    return real(fd, data, size);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off_t);
    if (behind(fd) && full()) return -1;
    return real(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    if (behind(fd) && full()) return -1;
    return real(fd, parts, count);
}
int fsync(int fd) {
    REAL(int, fsync, int);
    if (behind(fd) && full()) return -1;
    return real(fd);
}
int ftruncate64(int fd, off_t size) {
    REAL(int, ftruncate64, int, off_t);
    if (behind(fd) && full()) return -1;
    return real(fd, size);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    if (below(path) && full()) return -1;
    return real(path, mode);
}
int link(const char *from, const char *to) {
    REAL(int, link, const char *, const char *);
    if (below(to) && full()) return -1;
    return real(from, to);
}
int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    if (below(to) && full()) return -1;
    return real(from, to);
}
