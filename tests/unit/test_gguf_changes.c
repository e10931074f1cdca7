/* The file changes while it is mapped: noticed, survived, and a replacement by rename left alone. */
#include "engine/gguf/gguf.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

static char path[4096];

static struct gguf *open_model(void)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.n_embd = 256, .n_heads = 8, .n_ff = 512});
    struct gguf *g;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/m.gguf", suite_tmp());
    gguf_builder_write(b, path);
    gguf_builder_free(b);
    if (gguf_open(path, NULL, &g, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    ck_assert(!gguf_has_changed(g, NULL));
    return g;
}

static unsigned sum(const struct gguf_tensor *t)
{
    const unsigned char *p = t->data;
    unsigned s = 0;
    for (uint64_t i = 0; i < t->bytes; i++)
        s += p[i];
    return s;
}

static unsigned sum_all(const struct gguf *g)
{
    unsigned s = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        s += sum(gguf_tensor_at(g, i));
    return s;
}

static void expect_changed(struct gguf *g, const char *part)
{
    const char *why = NULL, *again;
    ck_assert(gguf_has_changed(g, &why));
    if (!strstr(why, part))
        ck_abort_msg("\"%s\" not in: %s", part, why);
    ck_assert(gguf_has_changed(g, NULL));
    ck_assert(gguf_has_changed(g, &again));
    ck_assert_str_eq(why, again);
}

TEST(a_truncated_file_is_noticed_and_reads_as_zeros)
{
    struct gguf *g = open_model();
    const struct gguf_tensor *last = gguf_tensor_find(g, "output.weight");
    ck_assert_uint_ne(sum(last), 0);
    ck_assert_int_eq(truncate(path, 4096), 0);
    sum_all(g);
    ck_assert_uint_eq(sum(last), 0);
    expect_changed(g, "m.gguf: the file changed while in use: 4096 bytes now");
    gguf_close(g);
}
END

TEST(a_file_truncated_and_grown_back_is_noticed_by_its_missing_page)
{
    struct gguf *g = open_model();
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(truncate(path, 4096), 0);
    sum_all(g);
    ck_assert_int_eq(truncate(path, st.st_size), 0);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    expect_changed(g, "a page of the file could not be read");
    gguf_close(g);
}
END

TEST(a_rewrite_in_place_is_noticed)
{
    struct gguf *g = open_model();
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "x", 1, st.st_size - 1), 1);
    close(fd);
    /* Two writes within one clock tick of the file system have one time; the test must not depend on that. */
    st.st_mtim.tv_sec++;
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    expect_changed(g, "m.gguf: the file was written to while in use");
    gguf_close(g);
}
END

TEST(a_change_of_any_shard_is_noticed)
{
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8});
    char stem[4096], name[4200];
    snprintf(stem, sizeof stem, "%s/s", suite_tmp());
    for (unsigned i = 1; i <= 3; i++) {
        struct gguf *g;
        gguf_builder_write_shards(b, stem, 3);
        snprintf(name, sizeof name, "%s-00001-of-00003.gguf", stem);
        ck_assert_int_eq(gguf_open(name, NULL, &g, NULL), STATUS_OK);
        ck_assert(!gguf_has_changed(g, NULL));
        snprintf(name, sizeof name, "%s-%05u-of-00003.gguf", stem, i);
        ck_assert_int_eq(truncate(name, 100), 0);
        snprintf(name, sizeof name, "s-%05u-of-00003.gguf: the file changed while in use: 100 bytes now", i);
        expect_changed(g, name);
        gguf_close(g);
    }
    gguf_builder_free(b);
}
END

TEST(a_change_stays_noticed)
{
    struct gguf *g = open_model();
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    struct timespec touched[2] = {st.st_atim, {st.st_mtim.tv_sec + 5, 0}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, touched, 0), 0);
    expect_changed(g, "written to");
    ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    expect_changed(g, "written to");
    gguf_close(g);
}
END

TEST(a_replacement_by_rename_is_no_change)
{
    struct gguf *g = open_model();
    char other[4200];
    unsigned before = sum_all(g);
    snprintf(other, sizeof other, "%s.new", path);
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.seed = 9});
    gguf_builder_write(b, other);
    gguf_builder_free(b);
    ck_assert_int_eq(rename(other, path), 0);
    ck_assert(!gguf_has_changed(g, NULL));
    ck_assert_uint_eq(sum_all(g), before);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(!gguf_has_changed(g, NULL));
    ck_assert_uint_eq(sum_all(g), before);
    gguf_close(g);
}
END

TEST(reading_changing_permissions_and_links_are_no_change)
{
    struct gguf *g = open_model();
    char other[4200];
    snprintf(other, sizeof other, "%s.link", path);
    ck_assert_int_eq(link(path, other), 0);
    ck_assert_int_eq(chmod(path, 0400), 0);
    size_t size;
    free(suite_read(path, &size));
    ck_assert(!gguf_has_changed(g, NULL));
    gguf_close(g);
}
END

static void *read_on(void *context)
{
    for (int i = 0; i < 20; i++)
        sum_all(context);
    return NULL;
}

TEST(threads_may_read_while_the_file_shrinks)
{
    struct gguf *g = open_model();
    pthread_t threads[4];
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, g), 0);
    for (off_t size = st.st_size; size > 4096; size -= 65536)
        ck_assert_int_eq(truncate(path, size), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    expect_changed(g, "bytes now");
    gguf_close(g);
}
END

TEST(prefault_survives_a_truncated_file)
{
    struct gguf *g = open_model();
    ck_assert_int_eq(truncate(path, 4096), 0);
    gguf_prefault(g, NULL, NULL);
    expect_changed(g, "4096 bytes now");
    gguf_close(g);
}
END

/* A page of a mapping that is none of ours. */
static volatile char *foreign_hole(void)
{
    char name[4200];
    snprintf(name, sizeof name, "%s/hole", suite_tmp());
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    char *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    close(fd);
    return p;
}

static void exit_with_5(int number)
{
    (void)number;
    _exit(5);
}

static void exit_with_6(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    _exit(info->si_addr ? 6 : 7);
}

/* Which bus error: the page mapped before the model, the page mapped behind it (one lies above it, one below), a signal. */
enum bus_error { HOLE_BEFORE, HOLE_BEHIND, SENT, BUS_ERRORS };

/* Status of a child that installs `action`, opens a model and then has a bus error that is not the model's. */
static int child_status(const struct sigaction *action, enum bus_error kind)
{
    pid_t child = fork();
    if (child == 0) {
        sigaction(SIGBUS, action, NULL);
        volatile char *before = foreign_hole();
        open_model();
        volatile char *behind = foreign_hole();
        if (kind == SENT)
            raise(SIGBUS);
        else
            (void)(kind == HOLE_BEFORE ? before : behind)[0];
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

TEST(a_bus_error_elsewhere_goes_to_the_action_before)
{
    struct sigaction action = {.sa_handler = exit_with_5};
    for (int kind = 0; kind < BUS_ERRORS; kind++) {
        int status = child_status(&action, (enum bus_error)kind);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    action = (struct sigaction){.sa_flags = SA_SIGINFO};
    action.sa_sigaction = exit_with_6;
    int status = child_status(&action, HOLE_BEHIND);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 6);
    action = (struct sigaction){.sa_handler = SIG_DFL};
    for (int kind = 0; kind < BUS_ERRORS; kind++) {
        status = child_status(&action, (enum bus_error)kind);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
    action = (struct sigaction){.sa_handler = SIG_IGN};
    status = child_status(&action, SENT);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    status = child_status(&action, HOLE_BEHIND);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}
END

TEST(mappings_come_and_go_without_leaving_slots_behind)
{
    struct gguf *g = open_model();
    for (int i = 0; i < 600; i++) {
        gguf_close(g);
        ck_assert_int_eq(gguf_open(path, NULL, &g, NULL), STATUS_OK);
    }
    ck_assert_int_eq(truncate(path, 4096), 0);
    sum_all(g);
    expect_changed(g, "4096 bytes now");
    gguf_close(g);
}
END

TEST(no_more_files_are_mapped_than_are_guarded)
{
    struct gguf *files[256], *g = open_model();
    struct error err;
    gguf_close(g);
    for (size_t i = 0; i < 256; i++)
        ck_assert_int_eq(gguf_open(path, NULL, &files[i], &err), STATUS_OK);
    ck_assert_int_eq(gguf_open(path, NULL, &g, &err), STATUS_RANGE);
    ck_assert_ptr_nonnull(strstr(err.text, "more than 256 model files mapped at one time"));
    gguf_close(files[100]);
    ck_assert_int_eq(gguf_open(path, NULL, &files[100], &err), STATUS_OK);
    for (size_t i = 0; i < 256; i++)
        gguf_close(files[i]);
}
END

SUITE(gguf_changes, T(a_truncated_file_is_noticed_and_reads_as_zeros),
      T(a_file_truncated_and_grown_back_is_noticed_by_its_missing_page), T(a_rewrite_in_place_is_noticed),
      T(a_change_of_any_shard_is_noticed), T(a_change_stays_noticed), T(a_replacement_by_rename_is_no_change),
      T(reading_changing_permissions_and_links_are_no_change), T(threads_may_read_while_the_file_shrinks),
      T(prefault_survives_a_truncated_file), T(a_bus_error_elsewhere_goes_to_the_action_before),
      T(mappings_come_and_go_without_leaving_slots_behind), T(no_more_files_are_mapped_than_are_guarded))
