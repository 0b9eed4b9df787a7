#include "fs/remote/native/demangle.h"

#include "fs/remote/native/cython_name.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct output {
    char *text;
    size_t size;
    jmp_buf full;
};

static void add(const char *bytes, size_t size, void *arg)
{
    struct output *out = arg;
    size_t room = DEMANGLE_MAX - 1 - out->size;

    if (!size) /* and bytes may be NULL then */
        return;
    memcpy(out->text + out->size, bytes, size < room ? size : room);
    out->size += size < room ? size : room;
    out->text[out->size] = 0;
    /* Substitutions can double the output at each step. The demanglers with a callback own no
     * memory at this point, so they can simply be left. */
    if (size > room)
        longjmp(out->full, 1);
}

/* False: not a mangled name. */
static bool demangle_into(const char *mangled, struct output *out)
{
    if (setjmp(out->full))
        return true;
    if (!strncmp(mangled, "_R", 2))
        return rust_demangle_callback(mangled, DMGL_NO_OPTS, add, out);
    return cplus_demangle_v3_callback(mangled, DMGL_NO_OPTS, add, out);
}

static void demangle_languages(const char *mangled, char *out)
{
    struct output output = {.text = out};

    out[0] = 0;
    if (mangled[0] == '_' && (mangled[1] == 'Z' || mangled[1] == 'R') &&
        strlen(mangled) <= DEMANGLE_INPUT_MAX && demangle_into(mangled, &output) && out[0])
        return;
    size_t size = strcspn(mangled, "@");
    snprintf(out, DEMANGLE_MAX, "%.*s", size < DEMANGLE_MAX ? (int)size : DEMANGLE_MAX, mangled);
}

void demangle(const char *mangled, char *out)
{
    char name[DEMANGLE_MAX];

    demangle_languages(mangled, out); /* Cython's may have been compiled as C++ */
    if (cython_name(out, name, sizeof name))
        memcpy(out, name, strlen(name) + 1);
}
