#include "fs/sampler/bpf/program.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "fs/base/ranges.h"
#include "fs/sampler/bpf/btf.h"
#include "fs/sampler/bpf/perf_events.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One instruction of the program holds the address of a map. */
struct map_use {
    uint32_t instruction;
    enum kernel_map map;
};

#include "fs/sampler/bpf/program_bytes.h"

#define CODE_MAX 4096 /* instructions of a part */
#define POSSIBLE_FILE "/sys/devices/system/cpu/possible"
#define LOG_MAX (1u << 16) /* of the kernel's verifier */

static int bpf(int command, union bpf_attr *attr)
{
    int r = (int)syscall(SYS_bpf, command, attr, sizeof *attr);

    return r < 0 ? -errno : r;
}

static uint64_t pointer(const void *p) { return (uint64_t)(uintptr_t)p; }

/* ---- maps ---- */

static int map_call(int command, int map, const void *key, const void *value)
{
    union bpf_attr attr = {.map_fd = (uint32_t)map};

    attr.key = pointer(key);
    attr.value = pointer(value);
    return bpf(command, &attr);
}

int map_get(int map, const void *key, void *value)
{
    return map_call(BPF_MAP_LOOKUP_ELEM, map, key, value);
}

int map_set(int map, const void *key, const void *value)
{
    return map_call(BPF_MAP_UPDATE_ELEM, map, key, value);
}

int map_drop(int map, const void *key) { return map_call(BPF_MAP_DELETE_ELEM, map, key, NULL); }

int map_next(int map, const void *key, void *next)
{
    return map_call(BPF_MAP_GET_NEXT_KEY, map, key, next);
}

static int new_map(enum bpf_map_type type, uint32_t key, uint32_t value, uint32_t n, int inner)
{
    union bpf_attr attr = {
        .map_type = type, .key_size = key, .value_size = value, .max_entries = n};

    strcpy(attr.map_name, "probefs");
    if (inner >= 0)
        attr.inner_map_fd = (uint32_t)inner;
    return bpf(BPF_MAP_CREATE, &attr);
}

int map_new_ring(uint32_t bytes) { return new_map(BPF_MAP_TYPE_RINGBUF, 0, 0, bytes, -1); }

static int make_maps(struct program *p)
{
    _cleanup_close_ int inner = map_new_ring((uint32_t)sysconf(_SC_PAGESIZE));
    const struct {
        enum bpf_map_type type;
        uint32_t value, n;
    } wanted[KERNEL_MAPS] = {
        [MAP_LAYOUT] = {BPF_MAP_TYPE_ARRAY, sizeof(struct kernel_layout), 1},
        [MAP_WATCHED] = {BPF_MAP_TYPE_HASH, sizeof(struct kernel_watched), KERNEL_PROCESSES_MAX},
        [MAP_RINGS] = {BPF_MAP_TYPE_ARRAY_OF_MAPS, 4, KERNEL_SLOTS},
        [MAP_FIGURES] = {BPF_MAP_TYPE_PERCPU_ARRAY, sizeof(struct kernel_figures), KERNEL_SLOTS},
        [MAP_AWAY] = {BPF_MAP_TYPE_HASH, sizeof(struct kernel_away), KERNEL_THREADS_MAX},
        [MAP_SCRATCH] = {BPF_MAP_TYPE_PERCPU_ARRAY, sizeof(struct kernel_scratch), 1},
    };

    if (inner < 0)
        return inner;
    for (int i = 0; i < KERNEL_MAPS; i++) {
        p->maps[i] =
            new_map(wanted[i].type, 4, wanted[i].value, wanted[i].n, i == MAP_RINGS ? inner : -1);
        if (p->maps[i] < 0)
            return p->maps[i];
    }
    return 0;
}

/* ---- parts ---- */

static const struct part {
    const char *name;
    enum bpf_prog_type type;
    const char *tracepoint; /* NULL: attached elsewhere, or not at all */
    const uint64_t *code;
    size_t n;
    const struct map_use *uses;
    size_t nuses;
} parts[KERNEL_PARTS] = {
/* clang-format off */
#define PART(name, type, tracepoint) \
    {#name, type, tracepoint, name##_code, ARRAY_SIZE(name##_code), name##_maps, \
     ARRAY_SIZE(name##_maps)}
    [PART_INTRODUCED] = PART(introduced, BPF_PROG_TYPE_RAW_TRACEPOINT, NULL),
    [PART_FORKED] = PART(forked, BPF_PROG_TYPE_RAW_TRACEPOINT, "sched_process_fork"),
    [PART_EXECUTED] = PART(executed, BPF_PROG_TYPE_RAW_TRACEPOINT, "sched_process_exec"),
    [PART_ENDED] = PART(ended, BPF_PROG_TYPE_RAW_TRACEPOINT, "sched_process_exit"),
    [PART_DEPARTED] = PART(departed, BPF_PROG_TYPE_RAW_TRACEPOINT, "sched_switch"),
    [PART_RETURNED] = PART(returned, BPF_PROG_TYPE_RAW_TRACEPOINT, "sched_switch"),
    [PART_SAMPLED] = PART(sampled, BPF_PROG_TYPE_PERF_EVENT, NULL),
    [PART_FAULTED] = PART(faulted, BPF_PROG_TYPE_PERF_EVENT, NULL),
    /* clang-format on */
};

/* What the verifier said last, on one line. */
static void say_refusal(const char *log, const char *part, int error, struct text *why)
{
    const char *end = log + strlen(log), *start;

    while (end > log && end[-1] == '\n')
        end--;
    for (int lines = 0; lines < 2; lines++) { /* the last one counts what it verified */
        for (start = end; start > log && start[-1] != '\n'; start--)
            ;
        if (strncmp(start, "processed ", 10) != 0)
            break;
        end = start > log ? start - 1 : start;
    }
    text_printf(why, "the kernel refuses the program '%s': %s", part, strerror(-error));
    if (end > start) {
        text_puts(why, ": ");
        text_add_escaped(why, start, (size_t)(end - start));
    }
}

static int load_part(struct program *p, enum kernel_part which, struct text *why)
{
    const struct part *part = &parts[which];
    _cleanup_free_ struct bpf_insn *code = calloc(part->n, sizeof *code);
    _cleanup_free_ char *log = calloc(1, LOG_MAX);
    union bpf_attr attr = {.prog_type = part->type, .insn_cnt = (uint32_t)part->n};

    if (!code || !log)
        return -ENOMEM;
    memcpy(code, part->code, part->n * sizeof *code);
    for (size_t i = 0; i < part->nuses; i++) {
        code[part->uses[i].instruction].src_reg = BPF_PSEUDO_MAP_FD;
        code[part->uses[i].instruction].imm = p->maps[part->uses[i].map];
        code[part->uses[i].instruction + 1].imm = 0;
    }
    attr.insns = pointer(code);
    attr.license = pointer("GPL");
    snprintf(attr.prog_name, sizeof attr.prog_name, "pf_%.12s", part->name);
    p->parts[which] = bpf(BPF_PROG_LOAD, &attr);
    if (p->parts[which] >= 0)
        return 0;
    int error = p->parts[which];
    if (error == -EPERM) {
        text_puts(why,
                  "not allowed to load BPF: the daemon needs CAP_BPF and CAP_PERFMON, or to be "
                  "root (kernel lockdown forbids it, too)");
        return error;
    }
    attr.log_buf = pointer(log);
    attr.log_size = LOG_MAX;
    attr.log_level = 1;
    int again = bpf(BPF_PROG_LOAD, &attr);
    if (again >= 0)
        close(again);
    say_refusal(log, part->name, error, why);
    return error;
}

static int attach(struct program *p, enum kernel_part which, struct text *why)
{
    union bpf_attr attr = {0};

    attr.raw_tracepoint.name = pointer(parts[which].tracepoint);
    attr.raw_tracepoint.prog_fd = (uint32_t)p->parts[which];
    p->links[which] = bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
    if (p->links[which] >= 0)
        return 0;
    text_printf(why, "%s can't be heard: %s", parts[which].tracepoint, strerror(-p->links[which]));
    return p->links[which];
}

/* ---- the kernel that runs here ---- */

static int learn_layout(struct kernel_layout *l, struct text *why)
{
    struct btf *btf;
    int r = btf_read(BTF_FILE, &btf);

    if (r < 0) {
        text_printf(why, "the kernel's type information can't be read (%s: %s)", BTF_FILE,
                    strerror(-r));
        return r;
    }
    const struct {
        const char *structure, *field;
        uint32_t *out;
    } fields[] = {
        {"task_struct", "thread.fsbase", &l->task_fsbase},
        {"task_struct", "pid", &l->task_pid},
        {"task_struct", "group_leader", &l->task_leader},
        {"task_struct", "thread_pid", &l->task_thread_pid},
        {"task_struct", "__state", &l->task_state},
        {"task_struct", "perf_event_ctxp", &l->task_events},
        {"perf_event", "hw.sample_period", &l->event_period},
        {"pid", "level", &l->pid_level},
        {"pid", "numbers", &l->pid_numbers},
        {"upid", "nr", &l->upid_nr},
        {"upid", "ns", &l->upid_ns},
    };
    for (size_t i = 0; i < ARRAY_SIZE(fields) && r == 0; i++) {
        int at = btf_field(btf, fields[i].structure, fields[i].field);
        if (at < 0) {
            text_printf(why, "this kernel's struct %s has no %s: Linux 5.15 is needed",
                        fields[i].structure, fields[i].field);
            r = -EOPNOTSUPP;
        }
        *fields[i].out = (uint32_t)at;
    }
    if (btf_size(btf, "perf_event_pmu_context") < 0)
        l->task_events += 8; /* before Linux 6.2 it is an array: hardware's, software's */
    l->upid_size = (uint32_t)btf_size(btf, "upid");
    btf_free(btf);
    return r;
}

/* Our own pid namespace is told by the program itself, as it runs for us. */
static int introduce(struct program *p, struct kernel_layout *l, struct text *why)
{
    uint32_t zero = 0;
    union bpf_attr attr = {0};

    attr.test.prog_fd = (uint32_t)p->parts[PART_INTRODUCED];
    int r = map_set(p->maps[MAP_LAYOUT], &zero, l);
    if (r == 0)
        r = bpf(BPF_PROG_TEST_RUN, &attr);
    if (r == 0)
        r = map_get(p->maps[MAP_LAYOUT], &zero, l);
    if (r == 0 && !l->space)
        r = -EOPNOTSUPP;
    if (r < 0)
        text_printf(why, "the daemon's pid namespace can't be told: %s", strerror(-r));
    return r;
}

/* The number of processors that the kernel can ever have: it writes so many values, and more than
 * there are now. */
static unsigned possible_processors(void)
{
    _cleanup_close_ int fd = open(POSSIBLE_FILE, O_RDONLY | O_CLOEXEC);
    struct ranges ranges;
    const char *wrong;
    char text[256];
    unsigned n = 0;

    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (size < 2 || text[size - 1] != '\n' ||
        !ranges_parse(text, (size_t)size - 1, &ranges, &wrong))
        return PROCESSORS_MAX;
    for (size_t i = 0; i < ranges.n; i++)
        n += ranges.items[i].high - ranges.items[i].low + 1;
    return n < PROCESSORS_MAX ? n : PROCESSORS_MAX;
}

static int load(struct program *p, struct text *why)
{
    struct kernel_layout layout = {0};
    int r = learn_layout(&layout, why);

    if (r < 0)
        return r;
    p->processors = possible_processors();
    r = make_maps(p);
    if (r == -EPERM)
        text_puts(why, "not allowed to use BPF: the daemon needs CAP_BPF and CAP_PERFMON, or to be "
                       "root");
    else if (r < 0)
        text_printf(why, "a BPF map can't be made: %s", strerror(-r));
    for (int i = 0; i < PART_DEPARTED && r == 0; i++)
        r = load_part(p, (enum kernel_part)i, why);
    if (r == 0)
        r = introduce(p, &layout, why);
    for (int i = PART_FORKED; i < PART_DEPARTED && r == 0; i++)
        r = attach(p, (enum kernel_part)i, why);
    return r;
}

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void program_free(struct program *p)
{
    close_all(p->links, KERNEL_PARTS);
    close_all(p->parts, KERNEL_PARTS);
    close_all(p->maps, KERNEL_MAPS);
    free(p);
}

/* The one program of the daemon: it is in the one kernel that there is. */
static struct {
    pthread_mutex_t lock;
    struct program *program;
    uint64_t event_ns; /* measured once */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

int program_get(struct program **out, struct text *why)
{
    if (!ARCH_SAMPLES_IN_KERNEL) {
        text_puts(why,
                  "the program for the kernel reads threads of 64-bit x86 only, not of " ARCH_NAME);
        return -EOPNOTSUPP;
    }
    _guard_mutex_(&shared.lock);
    if (!shared.program) {
        struct program *p = malloc(sizeof *p);
        if (!p)
            return -ENOMEM;
        memset(p, 0xff, sizeof *p); /* every descriptor is -1 */
        p->users = p->switch_users = 0;
        int r = load(p, why);
        if (r < 0) {
            program_free(p);
            return r;
        }
        if (!shared.event_ns)
            shared.event_ns = perf_events_cost(false);
        p->event_ns = shared.event_ns;
        shared.program = p;
    }
    shared.program->users++;
    *out = shared.program;
    return 0;
}

void program_put(struct program *program)
{
    if (!program)
        return;
    _guard_mutex_(&shared.lock);
    if (--program->users)
        return;
    shared.program = NULL;
    program_free(program);
}

/* Loads one that isn't wanted by everybody. The caller holds the lock. */
static int need_part(struct program *p, enum kernel_part part, struct text *why)
{
    return p->parts[part] >= 0 ? 0 : load_part(p, part, why);
}

int program_part(struct program *program, enum kernel_part part, struct text *why)
{
    _guard_mutex_(&shared.lock);
    int r = need_part(program, part, why);

    return r < 0 ? r : program->parts[part];
}

static void unlink_part(struct program *p, enum kernel_part part)
{
    if (p->links[part] >= 0)
        close(p->links[part]);
    p->links[part] = -1;
}

int program_hear_switches(struct program *program, struct text *why)
{
    _guard_mutex_(&shared.lock);
    int r = 0;

    for (int i = PART_DEPARTED; i <= PART_RETURNED && !program->switch_users && r == 0; i++) {
        r = need_part(program, (enum kernel_part)i, why);
        if (r == 0)
            r = attach(program, (enum kernel_part)i, why);
    }
    if (r < 0)
        unlink_part(program, PART_DEPARTED);
    else
        program->switch_users++;
    return r;
}

void program_ignore_switches(struct program *program)
{
    _guard_mutex_(&shared.lock);
    if (--program->switch_users)
        return;
    unlink_part(program, PART_DEPARTED);
    unlink_part(program, PART_RETURNED);
}
