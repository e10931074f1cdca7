/* Things that are not GGUF files, given as a model: each is refused by name, at once. */
#include "engine/gguf/gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/gguf_builder.h"
#include "tests/support/patience.h"
#include "tests/support/suite.h"

static const char *tmp_path(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", suite_tmp(), name);
    return path;
}

static void expect_refusal(const char *path, const char *part)
{
    struct gguf *g;
    struct error err = {0};
    double start = thread_cpu_ms(); /* who waits for ever ends at the limit of the test */
    ck_assert_int_ne(gguf_open(path, NULL, &g, &err), STATUS_OK);
    ck_assert_msg(in_time(thread_cpu_ms() - start, 1000), "%s: took too long", path);
    if (!strstr(err.text, part))
        ck_abort_msg("\"%s\" not in: %s", part, err.text);
}

TEST(what_is_not_a_regular_file_is_refused_by_kind)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_int_eq(mkfifo(tmp_path("fifo"), 0600), 0);
    expect_refusal(tmp_path("fifo"), "is a FIFO, not a regular file");
    expect_refusal(suite_tmp(), "is a directory, not a regular file");
    expect_refusal("/dev/zero", "/dev/zero: is a device, not a regular file");
    expect_refusal("/dev/null", "is a device");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", tmp_path("socket"));
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    expect_refusal(tmp_path("socket"), "socket: cannot be opened");
    close(fd);
    expect_refusal(tmp_path("absent"), "absent: cannot be opened: No such file or directory");
    ck_assert_int_eq(symlink("loop", tmp_path("loop")), 0);
    expect_refusal(tmp_path("loop"), "loop: cannot be opened: Too many levels");
    expect_refusal("", "cannot be opened");
}
END

TEST(an_unreadable_file_is_refused)
{
    const char *path = tmp_path("secret");
    gguf_image_write("GGUF", 4, path);
    ck_assert_int_eq(chmod(path, 0), 0);
    ck_assert_int_eq(chmod(suite_tmp(), 0755), 0);
    bool root = geteuid() == 0;
    if (root)
        ck_assert_int_eq(seteuid(65534), 0);
    expect_refusal(path, "secret: cannot be opened: Permission denied");
    if (root)
        ck_assert_int_eq(seteuid(0), 0);
}
END

TEST(formats_given_by_mistake_are_named)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *part;
    } cases[] = {
        {"", 0, "the file is empty"},
        {"G", 1, "file too short for a header: 1 bytes, 24 needed"},
        {"GGUF", 4, "file too short for a header: 4 bytes, 24 needed"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 23, "file too short for a header: 23 bytes, 24 needed"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", 63, "is a Git LFS pointer"},
        {"\x1f\x8b\x08\0\0\0\0\0\0\3", 10, "is a gzip file"},
        {"PK\3\4\x14\0\0\0\0\0", 10, "is a zip archive"},
        {"\x28\xb5\x2f\xfd\0\0", 6, "is a zstd file"},
        {"\x0a\0\0\0\0\0\0\0{\"a\":[1]}", 18, "is a safetensors file"},
        {"\x0a\0\0\0\0\0\0\0[{\"a\":1}]", 18, "magic \"\\x0a\\x00\\x00\\x00\" is not \"GGUF\""}, /* JSON, but no object */
        {"FUGG\0\0\0\3", 8, "is a byte-swapped (big-endian) GGUF file"},
        {"lmgg\1\0\0\0", 8, "is an old GGML file"},
        {"<!DOCTYPE html><html>", 21, "is an HTML page"},
        {"GGUf\3\0\0\0", 8, "magic \"GGUf\" is not \"GGUF\""},
        {"\0\x1b[0m\0", 6, "magic \"\\x00\\x1b[0\" is not \"GGUF\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_image_write(cases[i].bytes, cases[i].size, tmp_path("model.gguf"));
        expect_refusal(tmp_path("model.gguf"), cases[i].part);
        expect_refusal(tmp_path("model.gguf"), "model.gguf: ");
    }
}
END

TEST(a_sparse_terabyte_is_refused_at_once)
{
    const char *path = tmp_path("sparse");
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    if (ftruncate(fd, (off_t)1 << 40) != 0) {
        close(fd);
        SKIP("this file system has no files of a terabyte");
    }
    close(fd);
    expect_refusal(path, "magic \"\\x00\\x00\\x00\\x00\" is not \"GGUF\"");
    /* Counts that such a file could hold, but does not. */
    struct gguf_builder *b = gguf_builder_new();
    struct buffer image = {0};
    gguf_builder_image(b, &image);
    memset(image.data + 8, 0xff, 2);
    memset(image.data + 16, 0xff, 2);
    fd = open(path, O_WRONLY);
    ck_assert_int_eq(write(fd, image.data, 24), 24);
    close(fd);
    expect_refusal(path, "key number 0 of 65535: name: length 0 is outside 1..65535");
    buffer_clear(&image);
    gguf_builder_free(b);
}
END

TEST(long_paths_keep_their_end_in_messages)
{
    char name[200];
    memset(name, 'x', sizeof name);
    strcpy(name + 180, "-the-end.gguf");
    gguf_image_write("GGUF", 4, tmp_path(name));
    expect_refusal(tmp_path(name), "xxx-the-end.gguf: file too short");
    struct gguf *g;
    struct error err;
    gguf_open(tmp_path(name), NULL, &g, &err);
    ck_assert_int_eq(strncmp(err.text, "...xxx", 6), 0);
}
END

SUITE(gguf_files, T(what_is_not_a_regular_file_is_refused_by_kind), T(an_unreadable_file_is_refused),
      T(formats_given_by_mistake_are_named), T(a_sparse_terabyte_is_refused_at_once),
      T(long_paths_keep_their_end_in_messages))
