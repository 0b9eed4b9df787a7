#include "fs/remote/memory/core.h"

#include "agent/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/open_within.h"
#include "fs/proc/procfs.h"
#include "fs/remote/memory/core_unpack.h"
#include "fs/remote/memory/elf.h"
#include "fs/remote/memory/elf_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/procfs.h>

#define PAGE 4096u
#define NOTE_NAME_MAX 32
#define WORDS_MAX (1u << 17)       /* arguments, or variables of the environment */
#define WORDS_BYTES_MAX (8u << 20) /* of each; ARG_MAX is 2 MiB, 6 MiB at most */
#define AUXV_BYTES 2048
#define PROGRAM_MAX 64 /* program headers of a mapped file that are looked at */

/* One mapping while they are collected. */
struct piece {
    struct mapping mapping;
    struct core_mapping core;
    bool guessed; /* only the list of files has it: how it may be used isn't known */
};

struct opening {
    struct core *core;
    const struct core_opener *opener; /* NULL: this process opens files */
    struct text *why;
    struct piece *pieces; /* ascending from merge_pieces() on */
    size_t n, alloc;
    char *files; /* the note that lists the mapped files */
    size_t files_size;
    bool has_signal;          /* what the first thread got was read */
    Elf64_auxv_t auxv[2];     /* how what the kernel told the program begins; zero: not known */
    uint64_t page_size;       /* that the kernel told the program; 0: not known */
    uint64_t random, program; /* what that points to: bytes behind it, and the very last string */
};

/* ---- reading ---- */

static bool read_at(int fd, void *buf, size_t size, uint64_t offset)
{
    if (offset > INT64_MAX - size)
        return false;
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)buf + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* Bytes of a mapped file; what its last page has beyond its end is zero. */
static bool read_file(int fd, void *buf, size_t size, uint64_t offset)
{
    struct stat st;

    if (read_at(fd, buf, size, offset))
        return true;
    if (fstat(fd, &st) < 0 || offset >= (uint64_t)st.st_size)
        return false;
    size_t there = (size_t)((uint64_t)st.st_size - offset);
    uint64_t end = ((uint64_t)st.st_size + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    if (there >= size || offset + size > end || !read_at(fd, buf, there, offset))
        return false;
    memset((char *)buf + there, 0, size - there);
    return true;
}

/* Reads what lies in a mapping as a whole. */
static bool read_mapping(const struct core *core, size_t i, uint64_t addr, uint8_t *buf, size_t len)
{
    const struct mapping *mapping = &core->maps.items[i];
    const struct core_mapping *its = &core->mappings[i];
    uint64_t at = addr - mapping->start;

    if (at < its->dumped) {
        size_t n = its->dumped - at < len ? (size_t)(its->dumped - at) : len;
        if (its->offset > INT64_MAX - at || !read_at(core->fd, buf, n, its->offset + at))
            return false;
        at += n;
        buf += n;
        len -= n;
    }
    if (!len)
        return true;
    int fd = its->object < 0 ? -1 : core->objects[its->object].fd;
    return fd >= 0 && mapping->offset <= INT64_MAX - at &&
           read_file(fd, buf, len, mapping->offset + at);
}

bool core_read(const struct core *core, uint64_t addr, void *buf, size_t len)
{
    uint8_t *out = buf;

    while (len) {
        const struct mapping *mapping = maps_find(&core->maps, addr);
        if (!mapping)
            return false;
        size_t n = mapping->end - addr < len ? (size_t)(mapping->end - addr) : len;
        if (!read_mapping(core, (size_t)(mapping - core->maps.items), addr, out, n))
            return false;
        addr += n;
        out += n;
        len -= n;
    }
    return true;
}

/* ---- notes ---- */

static uint64_t ticks_of(const struct timeval *time)
{
    uint64_t seconds = time->tv_sec > 0 ? (uint64_t)time->tv_sec : 0;
    uint64_t micros = time->tv_usec > 0 ? (uint64_t)time->tv_usec : 0;

    return (seconds * 1000000 + micros) * (uint64_t)sysconf(_SC_CLK_TCK) / 1000000;
}

static int add_thread(struct core *core, const struct elf_prstatus *status)
{
    struct core_thread thread = {.tid = status->pr_pid};

    if (thread.tid <= 0 || core->lwps.n == LWP_MAX)
        return 0;
    if (ARRAY_GROW(core->threads, core->threads_alloc, core->lwps.n + 1) < 0)
        return -ENOMEM;
    _Static_assert(sizeof thread.regs.user == sizeof status->pr_reg, "elf_gregset_t");
    memcpy(&thread.regs.user, &status->pr_reg, sizeof thread.regs.user);
    thread.user_ticks = ticks_of(&status->pr_utime);
    thread.system_ticks = ticks_of(&status->pr_stime);
    if (!core->lwps.n) {
        core->signal = status->pr_cursig;
        core->faulted = thread.tid;
    }
    core->threads[core->lwps.n++] = thread;
    return 0;
}

static void note_process(struct core *core, const struct elf_prpsinfo *info)
{
    core->pid = info->pr_pid;
    core->ppid = info->pr_ppid;
    core->uid = info->pr_uid;
    core->gid = info->pr_gid;
    snprintf(core->comm, sizeof core->comm, "%.*s", (int)sizeof info->pr_fname, info->pr_fname);
    snprintf(core->command, sizeof core->command, "%.*s", (int)sizeof info->pr_psargs,
             info->pr_psargs);
    for (size_t n = strlen(core->command); n && core->command[n - 1] == ' ';)
        core->command[--n] = 0;
}

static void note_signal(struct opening *o, const siginfo_t *info)
{
    struct core *core = o->core;

    if (o->has_signal || core->lwps.n > 1)
        return; /* of another thread */
    o->has_signal = true;
    core->code = info->si_code;
    switch (info->si_signo) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
        core->has_address = info->si_code > 0 && info->si_code != SI_KERNEL;
        core->address = (uint64_t)(uintptr_t)info->si_addr;
    }
}

static void note_auxv(struct opening *o, const Elf64_auxv_t *auxv, size_t n)
{
    struct core *core = o->core;

    if (n >= 2)
        memcpy(o->auxv, auxv, sizeof o->auxv);
    for (size_t i = 0; i < n && auxv[i].a_type != AT_NULL; i++) {
        if (auxv[i].a_type == AT_ENTRY)
            core->entry = auxv[i].a_un.a_val;
        else if (auxv[i].a_type == AT_PAGESZ)
            o->page_size = auxv[i].a_un.a_val;
        else if (auxv[i].a_type == AT_SYSINFO_EHDR)
            core->vdso = auxv[i].a_un.a_val;
        else if (auxv[i].a_type == AT_RANDOM)
            o->random = auxv[i].a_un.a_val;
        else if (auxv[i].a_type == AT_EXECFN)
            o->program = auxv[i].a_un.a_val;
    }
}

static int note_files(struct opening *o, uint64_t offset, uint64_t size)
{
    if (o->files || size < 16 || size > CORE_FILES_BYTES_MAX)
        return 0;
    o->files = malloc(size + 1);
    if (!o->files)
        return -ENOMEM;
    if (!read_at(o->core->fd, o->files, size, offset)) {
        free(steal_pointer(o->files));
        return 0;
    }
    o->files[size] = 0;
    o->files_size = size;
    return 0;
}

static int read_note(struct opening *o, uint32_t type, uint64_t offset, uint64_t size)
{
    union {
        struct elf_prstatus status;
        struct elf_prpsinfo process;
        siginfo_t signal;
        Elf64_auxv_t auxv[64];
    } note;

    if (type == NT_FILE)
        return note_files(o, offset, size);
    size_t n = size < sizeof note ? size : sizeof note;
    memset(&note, 0, sizeof note);
    if (!read_at(o->core->fd, &note, n, offset))
        return 0;
    if (type == NT_PRSTATUS && n >= sizeof note.status)
        return add_thread(o->core, &note.status);
    if (type == NT_PRPSINFO && n >= sizeof note.process)
        note_process(o->core, &note.process);
    else if (type == NT_SIGINFO && n >= sizeof note.signal)
        note_signal(o, &note.signal);
    else if (type == NT_AUXV)
        note_auxv(o, note.auxv, n / sizeof *note.auxv);
    return 0;
}

static int read_notes(struct opening *o, const Elf64_Phdr *segment)
{
    uint64_t at = segment->p_offset, end = at + segment->p_filesz;
    int r = 0;

    for (unsigned i = 0; i < CORE_NOTES_MAX && r == 0 && end >= at; i++) {
        Elf64_Nhdr head;
        char name[NOTE_NAME_MAX] = "";
        if (end - at < sizeof head || !read_at(o->core->fd, &head, sizeof head, at))
            break;
        uint64_t names = at + sizeof head, data = names + ((head.n_namesz + 3ull) & ~3ull);
        if (data > end || head.n_descsz > end - data)
            break;
        if (head.n_namesz < sizeof name && !read_at(o->core->fd, name, head.n_namesz, names))
            break;
        if (!strcmp(name, "CORE"))
            r = read_note(o, head.n_type, data, head.n_descsz);
        at = data + ((head.n_descsz + 3ull) & ~3ull);
    }
    return r;
}

/* ---- what is mapped ---- */

static int add_piece(struct opening *o, const struct piece *piece)
{
    const struct mapping *m = &piece->mapping;

    if (m->end <= m->start || m->end > INT64_MAX || o->n == MAPS_MAX)
        return 0;
    if (ARRAY_GROW(o->pieces, o->alloc, o->n + 1) < 0)
        return -ENOMEM;
    o->pieces[o->n++] = *piece;
    return 0;
}

static int add_segment(struct opening *o, const Elf64_Phdr *segment)
{
    const struct piece piece = {
        .mapping = {.start = segment->p_vaddr,
                    .end = segment->p_vaddr + segment->p_memsz,
                    .readable = segment->p_flags & PF_R,
                    .writable = segment->p_flags & PF_W,
                    .executable = segment->p_flags & PF_X,
                    .path = ""},
        .core = {.offset = segment->p_offset,
                 .dumped = segment->p_filesz < segment->p_memsz ? segment->p_filesz
                                                                : segment->p_memsz,
                 .object = -1},
    };
    uint64_t end = segment->p_offset + piece.core.dumped;

    if (segment->p_offset > INT64_MAX || end > INT64_MAX)
        return 0;
    if (end > o->core->wanted)
        o->core->wanted = end;
    return add_piece(o, &piece);
}

static int by_start(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->mapping.start != y->mapping.start)
        return x->mapping.start < y->mapping.start ? -1 : 1;
    return x->guessed - y->guessed;
}

/* Ascending, and what overlaps what stands before it is dropped. */
static void merge_pieces(struct opening *o)
{
    size_t n = 0;

    if (o->n)
        array_sort(o->pieces, o->n, sizeof *o->pieces, by_start);
    for (size_t i = 0; i < o->n; i++)
        if (!n || o->pieces[i].mapping.start >= o->pieces[n - 1].mapping.end)
            o->pieces[n++] = o->pieces[i];
    o->n = n;
}

static struct piece *find_piece(struct opening *o, size_t n, uint64_t addr)
{
    size_t found = LOWER_BOUND(n, i, o->pieces[i].mapping.end <= addr);

    return found < n && o->pieces[found].mapping.start <= addr ? &o->pieces[found] : NULL;
}

/* The object of a path; -1: there are too many. The list has a file's mappings one after the other.
 */
static int find_object(struct core *core, const char *path, ssize_t *out)
{
    static const char deleted[] = " (deleted)";
    size_t size = strlen(path), tail = sizeof deleted - 1;

    if (size > tail && !strcmp(path + size - tail, deleted))
        size -= tail;
    *out = -1;
    for (size_t i = core->nobjects; i-- > 0;)
        if (strlen(core->objects[i].path) == size && !memcmp(core->objects[i].path, path, size)) {
            *out = (ssize_t)i;
            return 0;
        }
    if (core->nobjects == CORE_OBJECTS_MAX)
        return 0;
    if (ARRAY_GROW(core->objects, core->objects_alloc, core->nobjects + 1) < 0)
        return -ENOMEM;
    struct core_object *object = &core->objects[core->nobjects];
    *object = (struct core_object){.path = strndup(path, size), .fd = -1};
    if (!object->path)
        return -ENOMEM;
    *out = (ssize_t)core->nobjects++;
    return 0;
}

/* A file's mapping, which a segment has or, where nothing of it was dumped, none. */
static int add_file(struct opening *o, size_t nsegments, const uint64_t range[3],
                    uint64_t page_size, const char *path)
{
    uint64_t offset = range[2] * page_size;
    struct piece *piece = find_piece(o, nsegments, range[0]);
    ssize_t object;

    if (range[1] <= range[0] || (page_size && range[2] > INT64_MAX / page_size))
        return 0;
    int r = find_object(o->core, path, &object);
    if (r < 0 || object < 0)
        return r;
    if (offset == 0 && !o->core->objects[object].base)
        o->core->objects[object].base = range[0];
    if (piece) {
        piece->mapping.offset = offset + (piece->mapping.start - range[0]);
        piece->core.object = object;
        return 0;
    }
    return add_piece(o, &(struct piece){
                            .mapping = {.start = range[0],
                                        .end = range[1],
                                        .offset = offset,
                                        .readable = true,
                                        .path = ""},
                            .core = {.object = object},
                            .guessed = true,
                        });
}

/* The note NT_FILE: how many, the size of a page, each mapping's start, end and offset in pages;
 * then their paths. Source: fill_files_note(), fs/binfmt_elf.c. */
static int add_files(struct opening *o)
{
    const size_t nsegments = o->n;
    int r = 0;

    if (!o->files)
        return 0;
    uint64_t n = load64(o->files), page_size = load64(o->files + 8);
    if (n > MAPS_MAX || n > (o->files_size - 16) / 24)
        return 0;
    const char *path = o->files + 16 + n * 24, *end = o->files + o->files_size;
    for (uint64_t i = 0; i < n && path < end && r == 0; i++, path += strlen(path) + 1) {
        uint64_t range[3];
        memcpy(range, o->files + 16 + i * 24, sizeof range);
        r = add_file(o, nsegments, range, page_size, path);
    }
    merge_pieces(o);
    return r;
}

/* ---- the mapped files ---- */

/* Below the root, where links lead nowhere else. Not open for reading yet: to open a device may do
 * something. */
static int find_path(const struct core *core, const char *path, bool is_executable)
{
    const int flags = O_PATH | O_CLOEXEC;
    const struct open_how how = {.flags = (unsigned)flags, .resolve = RESOLVE_IN_ROOT};

    if (core->program && is_executable)
        return open(core->program, flags);
    if (path[0] != '/') {
        errno = ENOENT; /* of no file system */
        return -1;
    }
    _cleanup_close_ int root = open(core->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? -1 : open_within(root, path, &how);
}

static int open_regular(const struct core *core, const char *named, bool is_executable)
{
    char path[64];
    struct stat st;

    _cleanup_close_ int found = find_path(core, named, is_executable);
    if (found < 0)
        return -errno;
    if (fstat(found, &st) < 0 || !S_ISREG(st.st_mode))
        return -ENODATA;
    snprintf(path, sizeof path, "/proc/self/fd/%d", found);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Opens a file that the core file names, with the rights of its owner: it names what it likes. */
static int open_as_owner(const struct core *core, const char *path, bool is_executable)
{
    uid_t uid = (uid_t)setfsuid(core->stat.st_uid);
    gid_t gid = (gid_t)setfsgid(core->stat.st_gid);
    int r = open_regular(core, path, is_executable);

    setfsgid(gid);
    setfsuid(uid);
    return r;
}

int core_open_named(struct core *core, const char *path, bool is_executable, bool known)
{
    size_t n = core->nobjects;
    ssize_t at;

    int r = find_object(core, path, &at);
    if (r < 0 || at < 0)
        return r < 0 ? r : -EMFILE;
    struct core_object *object = &core->objects[at];
    if (core->nobjects > n)
        object->fd = known ? -ENOENT : open_as_owner(core, object->path, is_executable);
    return object->fd;
}

static int refuse_object(struct core_object *object, const char *why)
{
    snprintf(object->why, sizeof object->why, "%s", why);
    return -1;
}

/* Whether the file is the one that was mapped, as far as the core file has its head. */
static bool is_same(const struct core *core, const struct core_object *object, int fd)
{
    const struct memory dumped = {.core = core};
    struct elf_image image;
    uint8_t id[sizeof image.build_id];

    if (!object->base || elf_image_read(&dumped, object->base, &image) < 0 || !image.build_id_size)
        return true;
    return elf_file_build_id(fd, id, sizeof id) == image.build_id_size &&
           !memcmp(id, image.build_id, image.build_id_size);
}

static int open_object(const struct opening *o, struct core_object *object)
{
    const struct core_opener *opener = o->opener;
    bool is_executable = object - o->core->objects == o->core->executable;
    char magic[SELFMAG];

    _cleanup_close_ int fd = opener ? opener->open(opener->arg, object->path, is_executable)
                                    : open_as_owner(o->core, object->path, is_executable);
    object->is_data = fd == -ENODATA || (fd >= 0 && (!read_at(fd, magic, SELFMAG, 0) ||
                                                     memcmp(magic, ELFMAG, SELFMAG)));
    if (object->is_data)
        return refuse_object(object, "no ELF file");
    if (fd < 0)
        return refuse_object(object, strerror(-fd));
    if (!is_same(o->core, object, fd))
        return refuse_object(object, "another build than the one that ran");
    return steal_fd(fd);
}

/* Which of them is the program. */
static void find_executable(struct opening *o)
{
    const struct piece *piece = o->core->entry ? find_piece(o, o->n, o->core->entry) : NULL;

    o->core->executable = piece ? piece->core.object : o->core->nobjects ? 0 : -1;
}

/* Files are compared with what was dumped of them, so that none may be read before all were. */
static int open_objects(struct opening *o)
{
    struct core *core = o->core;
    _cleanup_free_ int *fds = calloc(core->nobjects + 1, sizeof *fds);

    if (!fds)
        return -ENOMEM;
    for (size_t i = 0; i < core->nobjects; i++)
        fds[i] = open_object(o, &core->objects[i]);
    for (size_t i = 0; i < core->nobjects; i++)
        core->objects[i].fd = fds[i];
    return 0;
}

/* How a mapping that only the list of files has may be used: as its segment in the file says. */
static void guess_use(const struct opening *o, struct mapping *mapping, int fd)
{
    const uint64_t page = o->page_size ? o->page_size : PAGE;
    Elf64_Ehdr header;
    Elf64_Phdr program[PROGRAM_MAX];

    if (fd < 0 || !read_at(fd, &header, sizeof header, 0) ||
        header.e_phentsize != sizeof *program || header.e_phnum > PROGRAM_MAX ||
        !read_at(fd, program, header.e_phnum * sizeof *program, header.e_phoff))
        return;
    for (size_t i = 0; i < header.e_phnum; i++)
        if (program[i].p_type == PT_LOAD &&
            (program[i].p_offset & ~(page - 1)) <= mapping->offset) {
            mapping->writable = program[i].p_flags & PF_W;
            mapping->executable = program[i].p_flags & PF_X;
        }
}

static void guess_uses(struct core *core, const struct opening *o)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->pieces[i].guessed)
            guess_use(o, &core->maps.items[i], core->objects[o->pieces[i].core.object].fd);
}

static int set_maps(struct opening *o)
{
    struct core *core = o->core;

    core->maps.items = calloc(o->n + 1, sizeof *core->maps.items);
    core->mappings = calloc(o->n + 1, sizeof *core->mappings);
    if (!core->maps.items || !core->mappings)
        return -ENOMEM;
    for (size_t i = 0; i < o->n; i++) {
        struct mapping *m = &core->maps.items[i];
        ssize_t object = o->pieces[i].core.object;
        *m = o->pieces[i].mapping;
        core->mappings[i] = o->pieces[i].core;
        if (object >= 0) {
            m->path = core->objects[object].path;
            m->inode = (uint64_t)object + 1; /* to tell files apart */
        } else if (core->vdso && m->start == core->vdso) {
            m->path = "[vdso]";
        }
    }
    core->maps.n = o->n;
    return 0;
}

/* ---- how it was started ----
 *
 * On the stack of a program that begins lie, upwards: argc, the arguments' addresses, NULL, those
 * of the environment, NULL, what the kernel told it (auxv), random bytes; then the strings
 * themselves, in the same order, and the program's name. Source: create_elf_tables(),
 * fs/binfmt_elf.c. */

/* Finds where a list of addresses begins that ends before a NULL at `end`: behind another NULL, or
 * behind the number of its addresses; 0: there is none. *first: the first of them, 0 of an empty
 * one. */
static uint64_t list_begin(const struct core *core, uint64_t end, bool counted, uint64_t *first)
{
    *first = 0;
    for (uint64_t n = 0; n < WORDS_MAX; n++) {
        uint64_t word, at = end - 8 * (n + 1);
        if (!core_read(core, at, &word, sizeof word))
            return 0;
        if (counted ? word == n : !word)
            return at + 8;
        *first = word;
    }
    return 0;
}

static void find_words(struct opening *o)
{
    struct core *core = o->core;
    uint8_t below[AUXV_BYTES];
    uint64_t auxv = 0, argument, variable;

    if (!o->auxv[0].a_type || !core_read(core, o->random - sizeof below, below, sizeof below))
        return;
    for (size_t at = -(o->random - sizeof below) % 8; at + sizeof o->auxv <= sizeof below && !auxv;
         at += 8)
        if (!memcmp(below + at, o->auxv, sizeof o->auxv))
            auxv = o->random - sizeof below + at;
    uint64_t list = auxv ? list_begin(core, auxv - 8, false, &variable) : 0;
    if (!list || !list_begin(core, list - 8, true, &argument))
        return;
    if (!variable)
        variable = o->program;
    if (argument < variable && variable - argument <= WORDS_BYTES_MAX)
        core->arguments = (struct core_words){argument, variable};
    if (variable < o->program && o->program - variable <= WORDS_BYTES_MAX)
        core->environment = (struct core_words){variable, o->program};
}

/* ---- threads ---- */

static int by_tid(const void *a, const void *b)
{
    const struct core_thread *x = a, *y = b;
    return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Tells of a thread as the kernel would have. A thread that waits in a system call has its number
 * where other threads have something negative. */
static void set_lwp(const struct core *core, const struct core_thread *thread, struct lwp *lwp)
{
    const struct registers *regs = &thread->regs;
    int64_t number = registers_syscall(regs);
    unsigned long long arguments[6];
    char line[256];

    *lwp = (struct lwp){.tid = thread->tid,
                        .inner_tid = thread->tid,
                        .state = 'R',
                        .user_ticks = thread->user_ticks,
                        .system_ticks = thread->system_ticks,
                        .syscall = -1,
                        .blocking = {.number = -1, .fd = -1}};
    snprintf(lwp->comm, sizeof lwp->comm, "%s", core->comm);
    if (number < 0 || number > INT32_MAX)
        return;
    lwp->state = 'S';
    lwp->syscall = (int)number;
    for (unsigned i = 0; i < ARRAY_SIZE(arguments); i++)
        arguments[i] = registers_argument(regs, i);
    for (unsigned i = 0; i < LWP_ARGUMENTS; i++)
        lwp->args[i] = arguments[i];
    snprintf(line, sizeof line, "%d 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx",
             lwp->syscall, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
             arguments[5], (unsigned long long)registers_sp(regs),
             (unsigned long long)registers_pc(regs));
    (void)blocking_parse(line, &lwp->blocking);
}

/* The kernel gives the first thread the times of all. Source: fill_prstatus(), fs/binfmt_elf.c. */
static void share_times(struct core *core)
{
    struct core_thread *first = NULL;
    uint64_t user = 0, system = 0;

    for (size_t i = 0; i < core->lwps.n; i++) {
        struct core_thread *thread = &core->threads[i];
        if (thread->tid == core->pid) {
            first = thread;
            continue;
        }
        user += thread->user_ticks;
        system += thread->system_ticks;
    }
    if (first && first->user_ticks >= user && first->system_ticks >= system) {
        first->user_ticks -= user;
        first->system_ticks -= system;
    }
}

static int set_threads(struct core *core)
{
    size_t n = 0;

    array_sort(core->threads, core->lwps.n, sizeof *core->threads, by_tid);
    for (size_t i = 0; i < core->lwps.n; i++)
        if (!n || core->threads[n - 1].tid != core->threads[i].tid)
            core->threads[n++] = core->threads[i];
    core->lwps.n = n;
    share_times(core);
    core->lwps.items = calloc(n, sizeof *core->lwps.items);
    if (!core->lwps.items)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        set_lwp(core, &core->threads[i], &core->lwps.items[i]);
    if (!core->signal)
        core->faulted = 0;
    if (!core->pid)
        core->pid = core->threads[0].tid;
    return 0;
}

/* ---- the whole ---- */

static int refuse(const struct core *core, int error, const char *words, struct text *why)
{
    text_printf(why, "core file %s: %s", core->path, words);
    return error;
}

static int read_segments(struct opening *o, const Elf64_Ehdr *header)
{
    uint64_t n = header->e_phnum;
    Elf64_Shdr first;
    int r = 0;

    if (n == PN_XNUM) /* more than fit */
        n = read_at(o->core->fd, &first, sizeof first, header->e_shoff) ? first.sh_info : 0;
    if (n > MAPS_MAX)
        n = MAPS_MAX;
    for (uint64_t i = 0; i < n && r == 0; i++) {
        Elf64_Phdr segment;
        if (header->e_phoff > INT64_MAX / 2 ||
            !read_at(o->core->fd, &segment, sizeof segment, header->e_phoff + i * sizeof segment))
            break;
        if (segment.p_type == PT_NOTE)
            r = read_notes(o, &segment);
        else if (segment.p_type == PT_LOAD)
            r = add_segment(o, &segment);
    }
    merge_pieces(o);
    return r;
}

static int read_head(struct opening *o, Elf64_Ehdr *header)
{
    static const char *const no_core =
        "it is no core file; name the file that the kernel, gcore or "
        "coredumpctl wrote";

    if (!read_at(o->core->fd, header, sizeof *header, 0) ||
        memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_type != ET_CORE)
        return refuse(o->core, -EINVAL, no_core, o->why);
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != ARCH_ELF ||
        header->e_phentsize != sizeof(Elf64_Phdr))
        return refuse(o->core, -EINVAL, "it is of another machine; " ARCH_NAME " can be read",
                      o->why);
    return 0;
}

static int unpack(struct opening *o)
{
    _cleanup_(text_deinit) struct text words = TEXT_INIT;
    const struct core_opener *opener = o->opener;
    struct core *core = o->core;
    struct stat st;

    if (!core_packer(core->fd))
        return 0;
    _cleanup_close_ int fd = opener ? opener->open(opener->arg, NULL, false) : core_unpack_space();
    int r = core_unpack(core->fd, fd, &words);
    if (r < 0)
        return refuse(core, r, words.data ? words.data : strerror(-r), o->why);
    if (fstat(fd, &st) < 0)
        return -errno;
    int packed = core->fd;
    core->fd = fd;
    fd = packed; /* to be closed */
    core->stat.st_size = st.st_size;
    return 0;
}

static int find_root(struct core *core, const char *path, struct text *why)
{
    core->root = realpath(path, NULL);
    if (core->root)
        return 0;
    int error = errno;
    text_printf(why, "sysroot %s: %s", path, strerror(error));
    return -error;
}

static int set_name(struct core *core)
{
    const char *slash = strrchr(core->path, '/');

    core->name = strdup(slash ? slash + 1 : core->path);
    return core->name ? 0 : -ENOMEM;
}

static int open_file(struct core *core, const char *path, struct text *why)
{
    core->path = realpath(path, NULL);
    if (!core->path) {
        int error = errno;
        text_printf(why, "core file %s: %s", path, strerror(error));
        return -error;
    }
    core->fd = open(core->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (core->fd < 0) {
        int error = errno;
        return refuse(core, -error, strerror(error), why);
    }
    if (fstat(core->fd, &core->stat) < 0 || !S_ISREG(core->stat.st_mode))
        return refuse(core, -EINVAL, "not a regular file", why);
    return set_name(core);
}

static int read_core(struct opening *o)
{
    struct core *core = o->core;
    Elf64_Ehdr header;

    int r = unpack(o);
    if (r == 0)
        r = read_head(o, &header);
    if (r == 0)
        r = read_segments(o, &header);
    if (r == 0 && !core->lwps.n)
        return refuse(core, -EINVAL, "it tells of no threads: it was cut, or is damaged", o->why);
    if (r == 0)
        r = add_files(o);
    if (r == 0)
        find_executable(o);
    if (r == 0)
        r = set_maps(o);
    if (r == 0)
        r = open_objects(o);
    if (r == 0) {
        guess_uses(core, o);
        find_words(o);
    }
    return r == 0 ? set_threads(core) : r;
}

static void opening_deinit(struct opening *o)
{
    free(o->pieces);
    free(o->files);
}

int core_parse(struct core *core, const struct core_opener *opener, struct text *why)
{
    _cleanup_(opening_deinit) struct opening o = {.core = core, .opener = opener, .why = why};

    return read_core(&o);
}

static struct core *core_new(void)
{
    struct core *core = calloc(1, sizeof *core);

    if (core)
        core->fd = core->executable = -1;
    return core;
}

int core_open(const char *path, const char *executable, const char *sysroot, struct core **out,
              struct text *why)
{
    struct core *core = core_new();

    if (!core)
        return -ENOMEM;
    if (executable)
        core->program = strdup(executable);
    int r = executable && !core->program ? -ENOMEM : find_root(core, sysroot ? sysroot : "/", why);
    if (r == 0)
        r = open_file(core, path, why);
    if (r == 0)
        *out = core;
    else
        core_free(core);
    return r;
}

int core_take(const char *path, int fd, const struct stat *stat, struct core **out)
{
    struct core *core = core_new();

    if (!core) {
        close(fd);
        return -ENOMEM;
    }
    core->fd = fd;
    core->stat = *stat;
    core->path = strdup(path);
    int r = core->path ? set_name(core) : -ENOMEM;
    if (r == 0)
        *out = core;
    else
        core_free(core);
    return r;
}

void core_free(struct core *core)
{
    if (!core)
        return;
    for (size_t i = 0; i < core->nobjects; i++) {
        if (core->objects[i].fd >= 0)
            close(core->objects[i].fd);
        free(core->objects[i].path);
    }
    if (core->fd >= 0)
        close(core->fd);
    free(core->objects);
    free(core->mappings);
    free(core->maps.items);
    free(core->lwps.items);
    free(core->threads);
    free(core->name);
    free(core->program);
    free(core->root);
    free(core->path);
    free(core);
}

/* ---- what it tells ---- */

int core_lwps(const struct core *core, struct lwp_list *out)
{
    struct lwp *items = malloc(core->lwps.n * sizeof *items);

    if (!items)
        return -ENOMEM;
    memcpy(items, core->lwps.items, core->lwps.n * sizeof *items);
    *out = (struct lwp_list){.items = items, .n = core->lwps.n};
    return 0;
}

int core_maps(const struct core *core, struct maps *out)
{
    struct mapping *items = malloc((core->maps.n + 1) * sizeof *items);

    if (!items)
        return -ENOMEM;
    memcpy(items, core->maps.items, core->maps.n * sizeof *items);
    *out = (struct maps){.items = items, .n = core->maps.n};
    return 0;
}

const struct core_thread *core_thread(const struct core *core, pid_t tid)
{
    const struct core_thread key = {.tid = tid};

    return bsearch(&key, core->threads, core->lwps.n, sizeof key, by_tid);
}

const struct core_thread *core_thread_of(const struct core *core, uint64_t thread_id)
{
    for (size_t i = 0; thread_id && i < core->lwps.n; i++)
        if (registers_are_of(&core->threads[i].regs, thread_id))
            return &core->threads[i];
    return NULL;
}

static ssize_t object_at(const struct core *core, uint64_t start)
{
    const struct mapping *mapping = maps_find(&core->maps, start);

    return mapping ? core->mappings[mapping - core->maps.items].object : -1;
}

static int open_again(const struct core *core, ssize_t object)
{
    if (object < 0 || core->objects[object].fd < 0)
        return -ENOENT;
    int fd = fcntl(core->objects[object].fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

int core_open_file(const struct core *core, uint64_t start)
{
    return open_again(core, object_at(core, start));
}

int core_open_executable(const struct core *core) { return open_again(core, core->executable); }

bool core_is_executable(const struct core *core, uint64_t start)
{
    return core->executable >= 0 && object_at(core, start) == core->executable;
}

static ssize_t read_words(const struct core *core, const struct core_words *words, char *out,
                          size_t cap)
{
    size_t n = words->end - words->start < cap - 1 ? (size_t)(words->end - words->start) : cap - 1;

    if (!core_read(core, words->start, out, n))
        n = 0;
    out[n] = 0;
    return (ssize_t)n;
}

ssize_t core_command(const struct core *core, char *line, size_t cap)
{
    ssize_t n = read_words(core, &core->arguments, line, cap);

    if (n > 0)
        return command_words(line, n, cap);
    snprintf(line, cap, "%s", core->command);
    return (ssize_t)strlen(line);
}

ssize_t core_environment(const struct core *core, char *block, size_t cap)
{
    return read_words(core, &core->environment, block, cap);
}

size_t core_missing(const struct core *core, struct text *out)
{
    size_t n = 0;

    for (size_t i = 0; i < core->nobjects; i++) {
        const struct core_object *object = &core->objects[i];
        if (object->fd >= 0 || object->is_data)
            continue;
        text_puts(out, n++ ? ", " : "");
        text_add_escaped(out, object->path, strlen(object->path));
        text_printf(out, " (%s)", object->why);
    }
    return n;
}

void core_add_signal(const struct core *core, struct text *out)
{
    const char *name = sigabbrev_np(core->signal);

    if (name)
        text_printf(out, "SIG%s", name);
    else
        text_printf(out, "signal %d", core->signal);
    if (core->has_address)
        text_printf(out, " at 0x%" PRIx64, core->address);
    if (core->signal == SIGSEGV && core->has_address)
        text_puts(out, core->code == SEGV_MAPERR   ? " (nothing is mapped there)"
                       : core->code == SEGV_ACCERR ? " (that is not allowed there)"
                                                   : "");
}
