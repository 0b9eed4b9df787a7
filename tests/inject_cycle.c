/* inject_cycle PID N LIBRARY [--unload] [--call FUNCTION] [--gap MICROSECONDS] [--deadline
 * MILLISECONDS] [--cold] [--entry NAME]
 *
 * Puts a library into a process N times, as the daemon does, and with --unload takes it out each
 * time. --call also calls a function of the library, int f(const struct agent_boot *). --cold
 * forgets what is known of the process before each cycle. Prints a line for each cycle,
 *
 *   cycle RESULT ATTEMPTS PAUSE_NS TOTAL_NS BORROWED HANDLE WORDS
 *
 * and for each unloading and call one that begins with "unload" or "call"; RESULT is 0, or the
 * name of the error, or what the entry returned after "entry:". At the end a summary. Exits 1 if
 * any failed, 2 on wrong usage. */
#include "agent/base/cleanup.h"
#include "agent/wire/proto.h"
#include "fs/inject/inject.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct options {
    pid_t pid;
    long cycles, gap_us, deadline_ms;
    const char *library, *entry, *call;
    bool unload, cold;
};

struct times {
    uint64_t *pause, *total;
    size_t n, failed;
};

static int parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.deadline_ms = 5000, .entry = AGENT_START_SYMBOL};
    if (argc < 4)
        return -EINVAL;
    o->pid = atoi(argv[1]);
    o->cycles = atol(argv[2]);
    o->library = argv[3];
    for (int i = 4; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--unload"))
            o->unload = true;
        else if (!strcmp(argv[i], "--cold"))
            o->cold = true;
        else if (!value)
            return -EINVAL;
        else if (!strcmp(argv[i], "--call"))
            o->call = value, i++;
        else if (!strcmp(argv[i], "--entry"))
            o->entry = value, i++;
        else if (!strcmp(argv[i], "--gap"))
            o->gap_us = atol(value), i++;
        else if (!strcmp(argv[i], "--deadline"))
            o->deadline_ms = atol(value), i++;
        else
            return -EINVAL;
    }
    return 0;
}

static void *read_file(const char *path, size_t *size)
{
    struct stat st;

    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    char *data = malloc((size_t)st.st_size + 1);
    if (data && read(fd, data, (size_t)st.st_size) != st.st_size) {
        free(data);
        return NULL;
    }
    *size = (size_t)st.st_size;
    return data;
}

/* File address of an exported function of an ELF file that we trust; 0: none. */
static uint64_t find_function(const char *data, const char *name)
{
    const Elf64_Ehdr *header = (const void *)data;
    const Elf64_Shdr *sections = (const void *)(data + header->e_shoff);

    for (size_t i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const Elf64_Sym *symbols = (const void *)(data + sections[i].sh_offset);
        const char *names = data + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (symbols[k].st_value && !strcmp(names + symbols[k].st_name, name))
                return symbols[k].st_value;
    }
    return 0;
}

static void report(const char *what, int r, const struct inject_result *result, struct text *why,
                   struct times *times)
{
    char text[32];

    snprintf(text, sizeof text, "%s", r < 0 ? strerrorname_np(-r) : "0");
    if (r == 0 && result->result)
        snprintf(text, sizeof text, "entry:%d", result->result);
    printf("%s %s %u %" PRIu64 " %" PRIu64 " %d %" PRIx64 " %s\n", what, text, result->attempts,
           result->pause_ns, result->total_ns, result->borrowed, result->handle,
           why->data ? why->data : "");
    fflush(stdout);
    text_clear(why);
    times->failed += r < 0;
}

static int cycle(struct injector *injector, const struct options *o,
                 const struct inject_image *image, const char *data, struct times *times)
{
    struct inject_result loaded, other;
    struct text why = TEXT_INIT;
    uint64_t deadline = (uint64_t)o->deadline_ms * 1000000u;

    int r = inject_load(injector, image, deadline, NULL, &loaded, &why);
    report("cycle", r, &loaded, &why, times);
    if (r == 0) {
        times->pause[times->n] = loaded.pause_ns;
        times->total[times->n++] = loaded.total_ns;
    }
    if (r == 0 && o->call) {
        uint64_t function = find_function(data, o->call);
        r = inject_call(injector, loaded.base + function, deadline, NULL, &other, &why);
        report("call", r, &other, &why, times);
    }
    if (r == 0 && o->unload) {
        r = inject_unload(injector, loaded.handle, deadline, NULL, &other, &why);
        report("unload", r, &other, &why, times);
    }
    text_deinit(&why);
    return r;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void summarize(const char *name, uint64_t *values, size_t n)
{
    if (!n)
        return;
    qsort(values, n, sizeof *values, ascending);
    printf("%s_ns p50 %" PRIu64 " p99 %" PRIu64 " max %" PRIu64 "\n", name, values[n / 2],
           values[n * 99 / 100], values[n - 1]);
}

static int run(const struct options *o, const char *data, size_t size)
{
    struct inject_image image = {data, size, find_function(data, o->entry)};
    struct times times = {calloc((size_t)o->cycles + 1, 8), calloc((size_t)o->cycles + 1, 8), 0, 0};
    struct injector *injector = NULL;
    struct target *target;

    int r = target_open(o->pid, &target);
    if (r < 0) {
        fprintf(stderr, "inject_cycle: %d: %s\n", o->pid, strerror(-r));
        return 1;
    }
    for (long i = 0; i < o->cycles; i++) {
        if (!injector && injector_new(target, &injector) < 0)
            break;
        r = cycle(injector, o, &image, data, &times);
        if (r == -ESRCH)
            break;
        if (o->cold) {
            injector_free(injector);
            injector = NULL;
        }
        if (o->gap_us)
            nanosleep(&(struct timespec){o->gap_us / 1000000, o->gap_us % 1000000 * 1000}, NULL);
    }
    summarize("pause", times.pause, times.n);
    summarize("total", times.total, times.n);
    printf("loaded %zu failed %zu\n", times.n, times.failed);
    injector_free(injector);
    target_unref(target);
    free(times.pause);
    free(times.total);
    return times.failed != 0;
}

int main(int argc, char **argv)
{
    struct options options;
    size_t size = 0;

    if (parse(argc, argv, &options) < 0) {
        fprintf(stderr, "usage: inject_cycle PID N LIBRARY [--unload] [--call FUNCTION] [--cold]"
                        " [--entry NAME] [--gap US] [--deadline MS]\n");
        return 2;
    }
    _cleanup_free_ char *data = read_file(options.library, &size);
    if (!data || size < sizeof(Elf64_Ehdr) || !find_function(data, options.entry)) {
        fprintf(stderr, "inject_cycle: %s: no library with %s()\n", options.library, options.entry);
        return 2;
    }
    return run(&options, data, size);
}
