/* Core files, written here piece by piece. */
#include "fs/remote/memory/core.h"

#include "fs/remote/memory/elf_file.h"
#include "fs/remote/memory/memory.h"
#include "tests/unit/check.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/procfs.h>
#include <unistd.h>

#define PAGE 4096u
#define IMAGE 0x400000u /* where the file is mapped: two pages, of which one is dumped */
#define STACK 0x7f0000u /* two pages */
#define HEAP 0x600000u  /* a page that was not dumped */

struct file {
    uint8_t data[64u << 10];
    size_t size;
};

static char directory[] = "/tmp/probefs-core-XXXXXX";

static void put(struct file *file, const void *data, size_t size)
{
    CHECK(file->size + size <= sizeof file->data);
    memcpy(file->data + file->size, data, size);
    file->size = (file->size + size + 3) & ~3ull;
}

static void put_note(struct file *file, uint32_t type, const void *data, size_t size)
{
    const Elf64_Nhdr head = {5, (uint32_t)size, type};

    put(file, &head, sizeof head);
    put(file, "CORE", 5);
    put(file, data, size);
}

static void put_thread(struct file *file, pid_t tid, int signal, uint64_t fs_base, int64_t call)
{
    struct elf_prstatus status = {.pr_pid = tid,
                                  .pr_cursig = (short)signal,
                                  .pr_utime = {tid == 40 ? 3 : 1, 500000}};
    struct user_regs_struct regs = {
        .orig_rax = (uint64_t)call, .rdi = 77, .fs_base = fs_base, .rsp = STACK + 64};

    memcpy(&status.pr_reg, &regs, sizeof regs);
    put_note(file, NT_PRSTATUS, &status, sizeof status);
}

static void put_files(struct file *file, const char *path)
{
    uint64_t head[] = {1, PAGE, IMAGE, IMAGE + 2 * PAGE, 0};
    uint8_t note[sizeof head + 4096];

    memcpy(note, head, sizeof head);
    strcpy((char *)note + sizeof head, path);
    put_note(file, NT_FILE, note, sizeof head + strlen(path) + 1);
}

/* As create_elf_tables() leaves it: two arguments, one variable. */
static void fill_stack(uint8_t stack[2 * PAGE], Elf64_auxv_t auxv[6])
{
    static const char strings[] = "python3\0-c\0HOME=/root\0/usr/bin/python3";
    uint64_t at = STACK + 0x1800;
    uint64_t words[] = {2, at, at + 8, 0, at + 11, 0};

    memcpy(auxv,
           (Elf64_auxv_t[6]){{AT_SYSINFO_EHDR, {0}},
                             {AT_HWCAP, {0xbfebfbff}},
                             {AT_ENTRY, {IMAGE + PAGE}},
                             {AT_RANDOM, {STACK + 0x1400}},
                             {AT_EXECFN, {at + 22}},
                             {AT_NULL, {0}}},
           6 * sizeof *auxv);
    memcpy(stack + 0x1200, words, sizeof words);
    memcpy(stack + 0x1200 + sizeof words, auxv, 6 * sizeof *auxv);
    memcpy(stack + 0x1800, strings, sizeof strings);
}

/* A core file that says that `path` was mapped, whose first page is head. */
static void make(struct file *file, const char *path, const uint8_t head[PAGE])
{
    static uint8_t stack[2 * PAGE];
    static struct file notes;
    const struct elf_prpsinfo process = {
        .pr_pid = 40, .pr_ppid = 1, .pr_uid = 7, .pr_fname = "python3", .pr_psargs = "python3 "};
    siginfo_t info = {.si_signo = SIGSEGV, .si_code = SEGV_MAPERR};
    Elf64_auxv_t auxv[6];
    Elf64_Ehdr header = {.e_type = ET_CORE,
                         .e_machine = EM_X86_64,
                         .e_phoff = sizeof header,
                         .e_phentsize = sizeof(Elf64_Phdr),
                         .e_phnum = 4};

    info.si_addr = (void *)16;
    fill_stack(stack, auxv);
    notes.size = 0;
    put_thread(&notes, 42, SIGSEGV, 0x5000, -1);
    put_note(&notes, NT_PRPSINFO, &process, sizeof process);
    put_note(&notes, NT_SIGINFO, &info, sizeof info);
    put_note(&notes, NT_AUXV, auxv, sizeof auxv);
    put_files(&notes, path);
    put_thread(&notes, 40, 0, 0x6000, LWP_FUTEX);

    uint64_t at = PAGE * 2;
    const Elf64_Phdr program[] = {
        {.p_type = PT_NOTE, .p_offset = 512, .p_filesz = notes.size},
        {PT_LOAD, PF_R, at, IMAGE, 0, PAGE, 2 * PAGE, 1},
        {PT_LOAD, PF_R | PF_W, at + PAGE, HEAP, 0, 0, PAGE, 1},
        {PT_LOAD, PF_R | PF_W, at + PAGE, STACK, 0, 2 * PAGE, 2 * PAGE, 1},
    };
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    *file = (struct file){0};
    memcpy(file->data, &header, sizeof header);
    memcpy(file->data + sizeof header, program, sizeof program);
    CHECK(512 + notes.size <= at);
    memcpy(file->data + 512, notes.data, notes.size);
    memcpy(file->data + at, head, PAGE);
    memcpy(file->data + at + PAGE, stack, sizeof stack);
    file->size = at + PAGE + sizeof stack;
}

static int open_it(const struct file *file, size_t size, const char *executable, struct core **out,
                   struct text *why)
{
    char path[64];

    snprintf(path, sizeof path, "%s/core", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, file->data, size) == (ssize_t)size && close(fd) == 0);
    text_clear(why);
    struct core *core;
    CHECK_INT(core_open(path, executable, NULL, &core, why), 0);
    int r = core_parse(core, NULL, why);
    if (r == 0)
        *out = core;
    else
        core_free(core);
    return r;
}

static void read_head(const char *path, uint8_t head[2 * PAGE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && read(fd, head, 2 * PAGE) == 2 * PAGE && close(fd) == 0);
}

static void test_what_it_tells(const struct core *core)
{
    struct text words = TEXT_INIT;
    char line[64];

    CHECK_STR(core->name, "core");
    CHECK_INT(core->pid, 40);
    CHECK_INT(core->ppid, 1);
    CHECK_INT(core->faulted, 42);
    CHECK_INT(core->lwps.n, 2);
    CHECK_INT(core->lwps.items[0].tid, 40);
    CHECK_INT(core->lwps.items[0].syscall, LWP_FUTEX);
    CHECK_INT(core->lwps.items[0].args[0], 77);
    CHECK_INT(core->lwps.items[0].user_ticks, 2 * sysconf(_SC_CLK_TCK)); /* not the other's too */
    CHECK_INT(core->lwps.items[1].user_ticks, sysconf(_SC_CLK_TCK) * 3 / 2);
    CHECK_INT(core->lwps.items[1].state, 'R');
    CHECK(registers_tls(&core_thread(core, 42)->regs) == 0x5000 && !core_thread(core, 41));
    CHECK_INT(core_thread_of(core, 0x6000)->tid, 40);
    CHECK(!core_thread_of(core, 0));
    core_add_signal(core, &words);
    CHECK_STR(words.data, "SIGSEGV at 0x10 (nothing is mapped there)");
    text_deinit(&words);
    CHECK_INT(core_command(core, line, sizeof line), 10);
    CHECK_STR(line, "python3 -c");
    CHECK_INT(core_environment(core, line, sizeof line), 11);
    CHECK_STR(line, "HOME=/root");
    CHECK_INT(core_environment(core, line, 5), 4);
    CHECK_STR(line, "HOME");
}

static void test_memory(const struct core *core, const uint8_t head[2 * PAGE], bool has_file)
{
    const struct memory memory = {.core = core};
    uint8_t got[PAGE + 16];
    uint64_t word;

    CHECK_INT(memory_read(&memory, IMAGE, got, 64), 0);
    CHECK(!memcmp(got, head, 64));
    CHECK_INT(memory_read(&memory, IMAGE + PAGE - 16, got, PAGE + 16), has_file ? 0 : -EFAULT);
    CHECK(!has_file || !memcmp(got, head + PAGE - 16, PAGE + 16));
    CHECK_INT(memory_read(&memory, STACK + 0x1200, &word, 8), 0);
    CHECK_INT(word, 2);
    CHECK_INT(memory_read(&memory, STACK + 2 * PAGE - 8, got, 16), -EFAULT); /* its end */
    CHECK_INT(memory_read(&memory, HEAP, got, 1), -EFAULT);                  /* not dumped */
    CHECK_INT(memory_read(&memory, 0, got, 1), -EFAULT);
    CHECK_INT(memory_read(&memory, UINT64_MAX - 4, got, 8), -EFAULT);
}

/* Two programs with build ids of their own. */
static void test_files(const char *self, const char *other)
{
    static uint8_t head[2 * PAGE], others[2 * PAGE];
    struct text why = TEXT_INIT, missing = TEXT_INIT;
    struct core *core;
    struct file file;

    read_head(self, head);
    read_head(other, others);
    make(&file, self, head);
    CHECK_INT(open_it(&file, file.size, NULL, &core, &why), 0);
    test_what_it_tells(core);
    test_memory(core, head, true);
    CHECK_INT(core_missing(core, &missing), 0);
    CHECK(core_is_executable(core, IMAGE) && !core_is_executable(core, STACK));
    int fd = core_open_file(core, IMAGE);
    CHECK(fd >= 0 && core_open_file(core, STACK) < 0);
    close(fd);
    core_free(core);

    make(&file, self, others); /* another one is there by now */
    CHECK_INT(open_it(&file, file.size, NULL, &core, &why), 0);
    test_memory(core, others, false);
    CHECK_INT(core_missing(core, &missing), 1);
    CHECK(strstr(missing.data, "another build"));
    core_free(core);
    CHECK_INT(open_it(&file, file.size, other, &core, &why), 0); /* but the right one is named */
    test_memory(core, others, true);
    core_free(core);

    make(&file, "/nothing/there (deleted)", head);
    CHECK_INT(open_it(&file, file.size, NULL, &core, &why), 0);
    text_clear(&missing);
    CHECK_INT(core_missing(core, &missing), 1);
    CHECK_STR(missing.data, "/nothing/there (No such file or directory)");
    core_free(core);
    text_deinit(&missing);
    text_deinit(&why);
}

static void test_cut(const char *self)
{
    static uint8_t head[2 * PAGE];
    struct text why = TEXT_INIT;
    struct file file;
    size_t opened = 0;

    read_head(self, head);
    make(&file, self, head);
    for (size_t size = 0; size < file.size; size += 61) {
        struct core *core = NULL;
        int r = open_it(&file, size, NULL, &core, &why);
        CHECK(r == 0 || (r == -EINVAL && why.size));
        CHECK(r < 0 || core->wanted == file.size);
        opened += r == 0;
        core_free(core);
    }
    CHECK(opened > 50);
    text_deinit(&why);
}

static void test_refused(void)
{
    static const uint8_t head[PAGE];
    struct text why = TEXT_INIT;
    struct core *core;
    struct file file;

    CHECK_INT(core_open("/nothing/there", NULL, NULL, &core, &why), -ENOENT);
    CHECK_STR(why.data, "core file /nothing/there: No such file or directory");
    text_clear(&why);
    CHECK_INT(core_open("/dev/null", NULL, NULL, &core, &why), -EINVAL);
    CHECK(strstr(why.data, "not a regular file"));
    make(&file, "", head);
    ((Elf64_Ehdr *)file.data)->e_type = ET_EXEC;
    CHECK_INT(open_it(&file, file.size, NULL, &core, &why), -EINVAL);
    CHECK(strstr(why.data, "it is no core file"));
    make(&file, "", head);
    ((Elf64_Ehdr *)file.data)->e_machine = EM_AARCH64;
    CHECK_INT(open_it(&file, file.size, NULL, &core, &why), -EINVAL);
    CHECK(strstr(why.data, "another machine"));
    make(&file, "", head);
    ((Elf64_Ehdr *)file.data)->e_phnum = 0;
    CHECK_INT(open_it(&file, file.size, NULL, &core, &why), -EINVAL);
    CHECK(strstr(why.data, "no threads"));
    text_deinit(&why);
}

int main(int argc, char **argv)
{
    char path[64], self[4096] = "";

    CHECK(mkdtemp(directory));
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    test_files(self, "/bin/sh");
    test_cut(self);
    test_refused();
    snprintf(path, sizeof path, "%s/core", directory);
    unlink(path);
    rmdir(directory);
    return 0;
}
