#include "fs/remote/native/demangle.h"
#include "fs/remote/native/symbols.h"
#include "tests/unit/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int symbols_landmark(int n); /* its address and size are what this test knows */
__attribute__((noinline)) int symbols_landmark(int n) { return n * 3 + 1; }

static struct memory memory;

/* The mapping that holds addr, and its image. */
static const struct mapping *find(const struct maps *maps, const void *addr,
                                  struct elf_image *image)
{
    const struct mapping *mapping = maps_find(maps, (uint64_t)(uintptr_t)addr);
    Dl_info info;

    CHECK(mapping && dladdr(addr, &info));
    CHECK_INT(elf_image_read(&memory, (uint64_t)(uintptr_t)info.dli_fbase, image), 0);
    return mapping;
}

static const char *name_at(const struct symbols *symbols, int fd, uint64_t addr)
{
    static char name[256];
    struct symbol symbol;

    if (!symbols_find(symbols, addr, addr, &symbol))
        return "none";
    CHECK(addr - symbol.addr < symbol.size || addr == symbol.addr);
    CHECK_INT(symbols_name(symbols, &memory, fd, &symbol, name, sizeof name), 0);
    return name;
}

static void test_own_file(const struct maps *maps)
{
    struct symbols *symbols;
    struct elf_image image;
    const struct mapping *mapping = find(maps, symbols_landmark, &image);
    uint64_t addr = (uint64_t)(uintptr_t)symbols_landmark - image.bias;

    int fd = symbols_open(&(struct memory){.pid = getpid()}, mapping, &image);
    CHECK(fd >= 0);
    CHECK_INT(symbols_read(fd, &symbols), 0);
    CHECK(symbols_size(symbols) > 0 && symbols_size(symbols) < 1 << 20);
    CHECK_STR(name_at(symbols, fd, addr), "symbols_landmark");
    CHECK_STR(name_at(symbols, fd, addr + 1), "symbols_landmark");
    CHECK(strcmp(name_at(symbols, fd, addr - 1), "symbols_landmark"));
    CHECK_STR(name_at(symbols, fd, 0), "none");
    CHECK_STR(name_at(symbols, fd, UINT64_MAX), "none");
    symbols_free(symbols);
    close(fd);
}

/* The C library: exported names from memory are those from the file. */
static void test_library(const struct maps *maps)
{
    struct symbols *symbols;
    struct elf_image image;
    /* a function that no sanitizer replaces by its own */
    find(maps, (const void *)(uintptr_t)&gnu_get_libc_version, &image);
    uint64_t addr = (uint64_t)(uintptr_t)&gnu_get_libc_version - image.bias;

    CHECK_INT(symbols_read_image(&memory, &image, &symbols), 0);
    CHECK_STR(name_at(symbols, -1, addr), "gnu_get_libc_version");
    CHECK_STR(name_at(symbols, -1, addr + 3), "gnu_get_libc_version");
    symbols_free(symbols);
}

/* Not ELF, cut off, not a regular file. */
static void test_bad_files(const struct maps *maps)
{
    char path[] = "/tmp/test_symbols.XXXXXX", buf[5000];
    struct symbols *symbols = NULL;
    struct elf_image image;
    const struct mapping *mapping = find(maps, symbols_landmark, &image);
    struct mapping fifo = *mapping;

    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_INT(symbols_read(fd, &symbols), -ENOEXEC);
    CHECK(write(fd, "#!/bin/sh\n", 10) == 10);
    CHECK_INT(symbols_read(fd, &symbols), -ENOEXEC);
    int self = open("/proc/self/exe", O_RDONLY);
    CHECK(self >= 0 && pread(self, buf, sizeof buf, 0) == sizeof buf);
    CHECK(pwrite(fd, buf, sizeof buf, 0) == sizeof buf);
    CHECK_INT(symbols_read(fd, &symbols), -ENOEXEC);
    close(fd);
    close(self);
    /* another file at the same path is not taken for the mapped one */
    fifo.start = fifo.end = 0;
    fifo.path = path;
    CHECK(symbols_open(&(struct memory){.pid = getpid()}, &fifo, &image) < 0);
    unlink(path);
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK(symbols_open(&(struct memory){.pid = getpid()}, &fifo, &image) <
          0); /* and does not wait for a writer */
    unlink(path);
    CHECK(!symbols);
}

static const char *demangled(const char *name)
{
    static char out[DEMANGLE_MAX];
    demangle(name, out);
    return out;
}

static void test_demangle(void)
{
    char name[4000];

    CHECK_STR(demangled("main"), "main");
    CHECK_STR(demangled("memcpy@@GLIBC_2.14"), "memcpy");
    CHECK_STR(demangled("_ZN2at6native9addmm_outERKNS_6TensorES3_"), "at::native::addmm_out");
    CHECK_STR(demangled("_ZNSt6vectorIiSaIiEE9push_backERKi"),
              "std::vector<int, std::allocator<int> >::push_back");
    CHECK_STR(demangled("_RNvC6_123foo3bar"), "123foo::bar");
    /* what Cython 3 makes of a module pack.my_mod */
    CHECK_STR(demangled("__pyx_pw_4pack_6my_mod_1greet"), "pack.my_mod.greet");
    CHECK_STR(demangled("__pyx_pw_4pack_6my_mod_3foo_bar"), "pack.my_mod.foo_bar");
    CHECK_STR(demangled("__pyx_pw_4pack_6my_mod_6My_Cls_5__init__"), "pack.my_mod.My_Cls.__init__");
    CHECK_STR(demangled("__pyx_pw_4pack_6my_mod_6My_Cls_9other_one_1closure_x"),
              "pack.my_mod.My_Cls.other_one.closure_x");
    CHECK_STR(demangled("__pyx_f_4pack_6my_mod_6My_Cls_inner"), "pack.my_mod.My_Cls.inner");
    CHECK_STR(demangled("__pyx_f_4pack_6my_mod_fast_sum"), "pack.my_mod.fast_sum");
    CHECK_STR(demangled("__pyx_pf_6my_mod_greet"), "my_mod.greet");
    CHECK_STR(demangled("__pyx_pf_4pack_6my_mod_4ab_cd"), "pack.my_mod.ab_cd");
    CHECK_STR(demangled("_ZL29__pyx_pw_4pack_6my_mod_1greetP7_objectS0_"), "pack.my_mod.greet");
    /* a function Py_run of the module, or run of a class Py */
    CHECK_STR(demangled("__pyx_pf_4pack_6my_mod_2Py_run"), "__pyx_pf_4pack_6my_mod_2Py_run");
    CHECK_STR(demangled("__pyx_pw_4pack_6my_mod_6My_Cls_6method___pyx_lambda_funcdef_lambda"),
              "__pyx_pw_4pack_6my_mod_6My_Cls_6method___pyx_lambda_funcdef_lambda");
    CHECK_STR(demangled("__pyx_pw_"), "__pyx_pw_");
    CHECK_STR(demangled("__pyx_pw_1greet"), "__pyx_pw_1greet");
    CHECK_STR(demangled("__pyx_f_99999999999999999999a_b"), "__pyx_f_99999999999999999999a_b");
    CHECK_STR(demangled("_ZN"), "_ZN");
    CHECK_STR(demangled("_Z"), "_Z");
    CHECK_STR(demangled(""), "");
    /* f<pair<int, int>, pair<that, that>, ...>: doubles with each step; cut, not expanded */
    strcpy(name, "_Z1fISt4pairIiiE");
    for (const char *id = "123456789ABCDEFGH"; *id; id++)
        snprintf(name + strlen(name), 32, "S0_IS%c_S%c_E", *id, *id);
    strcat(name, "Evv");
    CHECK(!strncmp(demangled(name), "f<std::pair<int, int>, std::pair<std::pair<int", 45));
    CHECK_INT(strlen(demangled(name)), DEMANGLE_MAX - 1);
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK_INT(strlen(demangled(name)), DEMANGLE_MAX - 1);
}

int main(void)
{
    struct maps maps;

    memory.pid = getpid();
    CHECK_INT(maps_read(getpid(), &maps), 0);
    test_own_file(&maps);
    test_library(&maps);
    test_bad_files(&maps);
    test_demangle();
    maps_deinit(&maps);
    return 0;
}
