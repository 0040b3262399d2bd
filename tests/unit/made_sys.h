/*
 * A made-up /sys: a folder of folders with small files, made before each test and gone after it.
 */
#ifndef V4BOX_TESTS_UNIT_MADE_SYS_H
#define V4BOX_TESTS_UNIT_MADE_SYS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>

#include <cmocka.h>

static char root[] = "/tmp/made_sys.XXXXXX";

/* Writes root/FOLDER/NAME; the folder is made if it is not there. */
static inline void made_bytes(const char *folder, const char *name, const char *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline void made_text(const char *folder, const char *name, const char *text)
{
    made_bytes(folder, name, text, strlen(text));
}

static inline int make_root(void **state)
{
    (void)state;
    strcpy(root + sizeof root - 7, "XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static inline int clear_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

#endif
