// A system that forgets what it could not sync: the k-th sync of one of the store's files fails, and everything that was
// written to that file since its last good sync is as it was before. TORTURE_LOST_PAGES is k, or `k+` for all from then on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct change {
  dev_t device;
  ino_t file;
  off64_t at, size;  // where bytes were replaced, and how long the file was
  ssize_t count;     // how many bytes there were
  char *bytes;
  struct change *before;
};
static struct change *changes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int syncs;

static int is_stores(int fd, struct stat64 *found) {
  char link[40], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  char *name = strrchr(path, '/');
  if (!name || strncmp(name, "/threadkeep.db", 14) || strstr(name, "-shm")) return 0;
  return fstat64(fd, found) == 0;
}

static void remember(int fd, off64_t at, size_t count) {
  struct stat64 found;
  if (!getenv("TORTURE_LOST_PAGES") || !is_stores(fd, &found)) return;
  struct change *change = malloc(sizeof *change);
  *change = (struct change){found.st_dev, found.st_ino, at, found.st_size, 0, malloc(count ? count : 1), changes};
  ssize_t got = pread64(fd, change->bytes, count, at);
  change->count = got < 0 ? 0 : got;
  changes = change;
}

static void forget(int fd, const struct stat64 *file, int undo) {
  ssize_t (*write_back)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
  int (*cut)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
  for (struct change **place = &changes; *place;) {
    struct change *change = *place;
    if (change->device != file->st_dev || change->file != file->st_ino) {
      place = &change->before;
      continue;
    }
    if (undo) {
      if (write_back(fd, change->bytes, change->count, change->at) != change->count) abort();
      if (cut(fd, change->size)) abort();
    }
    *place = change->before;
    free(change->bytes);
    free(change);
  }
}

static int synced(int fd, const char *name) {
  int (*real)(int) = dlsym(RTLD_NEXT, name);
  const char *k = getenv("TORTURE_LOST_PAGES");
  struct stat64 file;
  if (!k || !is_stores(fd, &file)) return real(fd);
  pthread_mutex_lock(&lock);
  int number = ++syncs, wanted = atoi(k), result;
  if (number == wanted || (number > wanted && strchr(k, '+'))) {
    forget(fd, &file, 1);
    errno = EIO;
    result = -1;
  } else {
    result = real(fd);
    if (result == 0) forget(fd, &file, 0);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

#define WRITES(name, offset)                                                  \
  ssize_t name(int fd, const void *bytes, size_t count, offset at) {          \
    ssize_t (*real)(int, const void *, size_t, offset) = dlsym(RTLD_NEXT, #name); \
    pthread_mutex_lock(&lock);                                                \
    remember(fd, at, count);                                                  \
    ssize_t done = real(fd, bytes, count, at);                                \
    pthread_mutex_unlock(&lock);                                              \
    return done;                                                              \
  }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

#define CUTS(name, offset)                                            \
  int name(int fd, offset size) {                                     \
    int (*real)(int, offset) = dlsym(RTLD_NEXT, #name);               \
    struct stat64 file;                                               \
    pthread_mutex_lock(&lock);                                        \
    if (fstat64(fd, &file) == 0 && file.st_size > size) remember(fd, size, file.st_size - size); \
    else remember(fd, size, 0);                                       \
    int done = real(fd, size);                                        \
    pthread_mutex_unlock(&lock);                                      \
    return done;                                                      \
  }
CUTS(ftruncate, off_t)
CUTS(ftruncate64, off64_t)
