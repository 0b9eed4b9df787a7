/* Names of C++ and Rust, and such as are made to be hard. */
#include "fs/base/worker.h"
#include "fs/remote/native/demangle.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

static void shows(const char *mangled, const char *want)
{
    char shown[DEMANGLE_MAX];

    demangle(mangled, shown);
    CHECK_STR(shown, want);
}

static void test_names(void)
{
    shows("_ZN2at6native3addEi", "at::native::add");
    shows("_RNvCsG6o5jIJa_4main3run", "main::run");
    shows("main", "main");
    shows("read@@GLIBC_2.2.5", "read");
    shows("_Znope", "_Znope");
}

/* As many times as there is room for, between beginning and end. */
static void fill(char *name, size_t size, const char *begin, const char *part, const char *end)
{
    size_t n = (size_t)snprintf(name, size, "%s", begin);

    while (n + strlen(part) + strlen(end) < size)
        n += (size_t)snprintf(name + n, size - n, "%s", part);
    snprintf(name + n, size - n, "%s", end);
}

static const char *const hard[][3] = {
    {"_Z1fI", "RT_", "Evv"},
    {"_Z1fIiRT_RT_RT_RT_RT_RT_RT_", "1AIiE", "EEv"},
    {"_Z1f", "P", "i"},
    {"_Z1f", "PF", "vvE"},
    {"_Z1fI", "1AI", "iEE"},
    {"_ZN", "1aI", "iEE"},
    {"_Z1fILi", "XLi", "1EE"},
    {"_Z1fIXcv", "cv", "iLi1EEEvv"},
    {"_Z1fIiEDT", "cl", "fp_EvT_"},
    {"_ZZ", "Z", "1fvE1gvE"},
    {"_Z1fIJ", "DpRT_", "EEvv"},
    {"_RNv", "INvC1a1b", "p"},
};

/* On the stack that crashes are rendered on. */
static void *demangle_all(void *arg)
{
    char name[DEMANGLE_MAX], shown[DEMANGLE_MAX];

    for (size_t size = 32; size <= sizeof name; size += 31)
        for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
            fill(name, size, hard[i][0], hard[i][1], hard[i][2]);
            demangle(name, shown);
            CHECK(*shown);
            if (strlen(name) > DEMANGLE_INPUT_MAX)
                CHECK_STR(shown, name);
        }
    return NULL;
}

/* 1,007 bytes, for which libiberty wants more than 256 KiB of stack. */
static void *demangle_deep(void *arg)
{
    char name[1008], shown[DEMANGLE_MAX];
    size_t n = (size_t)snprintf(name, sizeof name, "_Z1fIi");

    for (int i = 0; i < 168; i++)
        n += (size_t)snprintf(name + n, sizeof name - n, "RT_");
    fill(name + n, sizeof name - n, "", "1AIiE", "EEv");
    demangle(name, shown);
    CHECK_STR(shown, name);
    return NULL;
}

static void on_a_worker(void *(*run)(void *))
{
    pthread_t thread;

    CHECK_INT(worker_start(run, NULL, "demangle", &thread), 0);
    pthread_join(thread, NULL);
}

int main(void)
{
    test_names();
    on_a_worker(demangle_deep);
    on_a_worker(demangle_all);
    return 0;
}
