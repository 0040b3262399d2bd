/* What a program gives up before it starts. */
#include "init/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Everything the first version of Landlock knows: what is not granted below is refused. */
#define RIGHTS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RIGHTS_MAKE                                                                                \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |                              \
     LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK)
#define RIGHTS_ALL                                                                                 \
    (RIGHTS_READ | RIGHTS_MAKE | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_REMOVE_DIR |      \
     LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_FIFO |   \
     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)
/* What has a meaning for a single file; the kernel refuses a rule with more. */
#define RIGHTS_OF_FILE                                                                             \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE)

static uint64_t rights_of(enum file_access access)
{
    switch (access) {
    case FILE_READ:
        return RIGHTS_READ;
    case FILE_EXECUTE:
        return RIGHTS_READ | LANDLOCK_ACCESS_FS_EXECUTE;
    case FILE_WRITE:
        return RIGHTS_READ | RIGHTS_MAKE;
    }
    return 0;
}

static int allow(int ruleset, const struct file_rule *rule)
{
    struct stat st;
    int fd = open(rule->path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    struct landlock_path_beneath_attr beneath = {.parent_fd = fd,
                                                 .allowed_access = rights_of(rule->access)};
    int result = fstat(fd, &st);
    if (result == 0) {
        if (!S_ISDIR(st.st_mode))
            beneath.allowed_access &= RIGHTS_OF_FILE;
        result =
            (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
    }
    close(fd);
    return result;
}

int confine_files(const struct file_rule *rules, size_t rule_count)
{
    struct landlock_ruleset_attr attr = {.handled_access_fs = RIGHTS_ALL};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset < 0)
        return -1;
    int result = 0;
    for (size_t i = 0; i < rule_count && result == 0; i++)
        result = allow(ruleset, &rules[i]);
    if (result == 0)
        result = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (result == 0)
        result = (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
    close(ruleset);
    return result;
}

/* A kernel without Landlock is a developer's machine; the image's own kernel is tested to have it.
 */
int confine_no_files(void)
{
    return confine_files(NULL, 0) == 0 || errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -1;
}

int confine_process(void)
{
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0)
        return -1;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

int confine_user(uid_t uid)
{
    if (getuid() == uid && geteuid() == uid)
        return 0;
    if (setgroups(0, NULL) != 0 || setresgid(uid, uid, uid) != 0)
        return -1;
    return setresuid(uid, uid, uid);
}

/* Leaves one capability, as far as it was there. */
static int keep_capability(int capability)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (syscall(SYS_capget, &header, data) != 0)
        return -1;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        uint32_t keep = i == capability / 32 ? 1u << capability % 32 : 0;
        data[i].permitted &= keep;
        data[i].effective = data[i].permitted; /* a change of user has emptied these */
        data[i].inheritable = 0;
    }
    return (int)syscall(SYS_capset, &header, data);
}

int confine_capabilities(void)
{
    return keep_capability(CAP_DAC_OVERRIDE);
}

int confine_user_but(uid_t uid, int capability)
{
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || confine_user(uid) != 0)
        return -1;
    return keep_capability(capability);
}
