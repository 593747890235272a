/* Preloaded into a node: makes its disk fail, and notes what is safe from a power loss.
 *
 * FAULT_DATA: the data directory, absolute.   FAULT_DIR: where we are told and tell:
 *
 *     fail-sync, fail-write, fail-read   while the file is there, fdatasync/fsync, write/writev or pread fail with EIO
 *     hang-sync, hang-write              while the file is there, they don't return
 *     slow-sync                          while the file is there, each takes SLOW_US longer
 *         The file says where: folders below FAULT_DATA, one a line, or no line for all of it. If its first line is
 *         "once", the first failure takes the file away.
 *     events                  if FAULT_NOTES is set: a line for each change of the data directory, separated by tabs:
 *         S path size         a file was synced up to this size        D path   the names in a directory were
 *         C path, M path      a file, a directory was created          X path   a directory was removed
 *         U path grave        a file was removed; its bytes live on as FAULT_DIR/grave (a hard link)
 *         R old new grave     a file was renamed; what had the new name lives on, "-": nothing did
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define ROOM (2 * PATH_MAX)
#define SLOW_US 400000
#define REAL(name) ((__typeof__(&name))real(#name))

static atomic_int graves;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static int is_ours(const char *path) {
    const char *data = getenv("FAULT_DATA");
    size_t length = data ? strlen(data) : 0;
    return length && !strncmp(path, data, length) && (path[length] == '/' || !path[length]);
}

/* The absolute path of a descriptor, or of a name below one. */
static int path_of(int dir, const char *name, char *path) {
    char link[64];
    if (name && name[0] == '/') return snprintf(path, ROOM, "%s", name) > 0;
    if (dir == AT_FDCWD) {
        if (!getcwd(path, PATH_MAX)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        ssize_t length = readlink(link, path, PATH_MAX);
        if (length < 0) return 0;
        path[length] = 0;
    }
    if (name && strcmp(name, ".")) {
        size_t length = strlen(path);
        snprintf(path + length, ROOM - length, "/%s", name);
    }
    return is_ours(path);
}

/* Whether the file is in one of the folders, or no folder is named. */
static int is_below(const char *path, char *folders) {
    char *rest = folders, *folder, whole[ROOM];
    int is_any = 1;
    while ((folder = strsep(&rest, "\n"))) {
        if (!*folder) continue;
        is_any = 0;
        int length = snprintf(whole, sizeof whole, "%s/%s", getenv("FAULT_DATA"), folder);
        if (!strncmp(path, whole, length) && (path[length] == '/' || !path[length])) return 1;
    }
    return is_any;
}

/* Whether this is to happen now to the file behind the descriptor. */
static int is_told(const char *what, int file) {
    const char *directory = getenv("FAULT_DIR");
    char trigger[ROOM], path[ROOM], text[1024] = "";
    if (!directory) return 0;
    int saved = errno, is_it = 0;
    snprintf(trigger, sizeof trigger, "%s/%s", directory, what);
    if (!access(trigger, F_OK) && path_of(file, NULL, path)) {
        int fd = REAL(open)(trigger, O_RDONLY | O_CLOEXEC);
        ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0) close(fd);
        if (length >= 0) {
            text[length] = 0;
            int is_once = !strncmp(text, "once\n", 5);
            is_it = is_below(path, is_once ? text + 5 : text) && (!is_once || !REAL(unlink)(trigger));
        }
    }
    errno = saved;
    return is_it;
}

/* Wait while it hangs. Returns: whether it fails then. */
static int is_ill(const char *what, int file) {
    char trigger[64];
    snprintf(trigger, sizeof trigger, "hang-%s", what);
    while (is_told(trigger, file)) usleep(20000);
    snprintf(trigger, sizeof trigger, "fail-%s", what);
    if (!is_told(trigger, file)) return 0;
    errno = EIO;
    return 1;
}

static int takes_notes(void) { return getenv("FAULT_DIR") && getenv("FAULT_NOTES"); }

static void note(const char *format, ...) {
    if (!takes_notes()) return;
    char line[4 * ROOM], path[ROOM];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    snprintf(path, sizeof path, "%s/events", getenv("FAULT_DIR"));
    int saved = errno;
    int fd = REAL(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || REAL(write)(fd, line, length) != length) abort();
    close(fd);
    errno = saved;
}

/* Keep the bytes of a file that is about to lose its name. */
static void bury(const char *path, char *grave) {
    char kept[ROOM];
    if (!takes_notes()) return;
    snprintf(grave, 64, "grave.%d.%d", getpid(), atomic_fetch_add(&graves, 1));
    snprintf(kept, sizeof kept, "%s/%s", getenv("FAULT_DIR"), grave);
    if (link(path, kept)) strcpy(grave, "-");
}

static int sync_or_fail(int fd, int (*sync)(int)) {
    char path[ROOM];
    struct stat before;
    if (!path_of(fd, NULL, path)) return sync(fd);
    if (is_ill("sync", fd)) return -1;
    if (is_told("slow-sync", fd)) usleep(SLOW_US);
    fstat(fd, &before);
    int result = sync(fd);
    if (!result && S_ISDIR(before.st_mode)) note("D\t%s\n", path);
    else if (!result) note("S\t%s\t%lld\n", path, (long long)before.st_size);
    return result;
}

int fdatasync(int fd) { return sync_or_fail(fd, REAL(fdatasync)); }

int fsync(int fd) { return sync_or_fail(fd, REAL(fsync)); }

ssize_t write(int fd, const void *data, size_t size) {
    return is_ill("write", fd) ? -1 : REAL(write)(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    return is_ill("write", fd) ? -1 : REAL(writev)(fd, parts, count);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset) {
    return is_ill("read", fd) ? -1 : REAL(pread)(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
    return is_ill("read", fd) ? -1 : REAL(pread64)(fd, data, size, offset);
}

static int open_and_note(int dir, const char *name, int flags, mode_t mode) {
    char path[ROOM];
    int is_new = (flags & O_CREAT) && path_of(dir, name, path) && access(path, F_OK);
    int fd = REAL(openat)(dir, name, flags, mode);
    if (fd >= 0 && is_new) note("C\t%s\n", path);
    return fd;
}

#define OPEN(name, dir, ...)                                  \
    int name(__VA_ARGS__, const char *file, int flags, ...) { \
        va_list values;                                       \
        va_start(values, flags);                              \
        mode_t mode = va_arg(values, int);                    \
        va_end(values);                                       \
        return open_and_note(dir, file, flags, mode);         \
    }

OPEN(openat, dir, int dir)
OPEN(openat64, dir, int dir)

int mkdirat(int dir, const char *name, mode_t mode) {
    char path[ROOM];
    int result = REAL(mkdirat)(dir, name, mode);
    if (!result && path_of(dir, name, path)) note("M\t%s\n", path);
    return result;
}

int mkdir(const char *name, mode_t mode) {
    char path[ROOM];
    int result = REAL(mkdir)(name, mode);
    if (!result && path_of(AT_FDCWD, name, path)) note("M\t%s\n", path);
    return result;
}

int unlinkat(int dir, const char *name, int flags) {
    char path[ROOM], grave[64] = "-";
    if (!path_of(dir, name, path)) return REAL(unlinkat)(dir, name, flags);
    if (!(flags & AT_REMOVEDIR)) bury(path, grave);
    int result = REAL(unlinkat)(dir, name, flags);
    if (!result && (flags & AT_REMOVEDIR)) note("X\t%s\n", path);
    else if (!result) note("U\t%s\t%s\n", path, grave);
    return result;
}

int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

int renameat(int old_dir, const char *old_name, int new_dir, const char *new_name) {
    char old[ROOM], new[ROOM], grave[64] = "-";
    if (!path_of(old_dir, old_name, old) || !path_of(new_dir, new_name, new))
        return REAL(renameat)(old_dir, old_name, new_dir, new_name);
    bury(new, grave);
    int result = REAL(renameat)(old_dir, old_name, new_dir, new_name);
    if (!result) note("R\t%s\t%s\t%s\n", old, new, grave);
    return result;
}
