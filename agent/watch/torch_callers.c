#include "agent/watch/torch_callers.h"

#include "agent/arch/arch.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096u
#define WINDOW (2 * PAGE)    /* bytes of the stack that are looked through, at most */
#define PIECE 2048u          /* bytes of it that are copied at once: mostly the first ones do */
#define STACK_MAX (8u << 20) /* of the main thread, that is read without asking */
#define CALLS_MAX 16         /* addresses that are known to be behind a call of an operator */
#define KNOWN_MAX 64         /* addresses whose names are kept */
#define NAME_SIZE 48

struct range {
    uint64_t start, end;
};

static struct {
    struct range operators, python; /* code of libtorch_cpu and of libtorch_python */
    uint64_t stack_top;             /* of the main thread */
    bool busy;                      /* somebody's stack is in the piece, and has what follows */
    uint64_t piece[PIECE / 8];
    uint64_t calls[CALLS_MAX];
    unsigned next_call;
} torch;

/* ---- where it is ---- */

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct range *range = !info->dlpi_name                                 ? NULL
                          : strstr(info->dlpi_name, "/libtorch_cpu.so")    ? &torch.operators
                          : strstr(info->dlpi_name, "/libtorch_python.so") ? &torch.python
                                                                           : NULL;

    for (unsigned i = 0; range && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && header->p_flags & PF_X)
            *range = (struct range){info->dlpi_addr + header->p_vaddr,
                                    info->dlpi_addr + header->p_vaddr + header->p_memsz};
    }
    return 0;
}

bool torch_callers_bind(void)
{
    if (!torch.operators.end)
        dl_iterate_phdr(visit, NULL);
    torch.stack_top = getauxval(AT_EXECFN) & ~7ul;
    return torch.operators.end;
}

/* ---- in the handler ---- */

static bool is_in(const struct range *range, uint64_t address)
{
    return address >= range->start + 8 && address < range->end;
}

/* Whether a call ends before that address, which is in code. */
static bool is_behind_call(uint64_t address)
{
    return arch_is_behind_call((const uint8_t *)(uintptr_t)address);
}

/* Whether a slot of libtorch_python that the dynamic linker fills in leads to libtorch_cpu. */
static bool leads_to_operators(uint64_t slot)
{
    uint64_t to = 0;
    struct iovec into = {&to, sizeof to}, from = {(void *)(uintptr_t)slot, sizeof to};

    return slot % 8 == 0 && process_vm_readv(getpid(), &into, 1, &from, 1, 0) == sizeof to &&
           is_in(&torch.operators, to + 8);
}

/* Whether the call that ends before an address in libtorch_python goes to libtorch_cpu: by such a
 * slot, or by an entry of the linkage table that jumps there. */
static bool calls_operators(uint64_t address)
{
    const uint8_t *p = (const uint8_t *)(uintptr_t)address;

    uint64_t slot = arch_called_by_slot(p);
    if (slot)
        return leads_to_operators(slot);
    uint64_t entry = arch_called(p);
    if (!is_in(&torch.python, entry) || entry + 16 > torch.python.end)
        return false;
    slot = arch_linkage_slot((const uint8_t *)(uintptr_t)entry);
    return slot && leads_to_operators(slot);
}

/* calls_operators(), without looking twice: what was once linked stays so. */
static bool is_known_call(uint64_t address)
{
    for (unsigned i = 0; i < CALLS_MAX; i++)
        if (torch.calls[i] == address)
            return true;
    bool calls = calls_operators(address);
    if (calls)
        torch.calls[torch.next_call++ % CALLS_MAX] = address;
    return calls;
}

/* Up to where a thread's stack can be read without asking: the main thread's ends where the kernel
 * has put what the program was begun with (AT_EXECFN), and no mapping is near it; of another one
 * there is the rest of the page. */
static uint64_t mapped_until(uint64_t stack)
{
    uint64_t top = torch.stack_top;

    return stack < top && top - stack < STACK_MAX ? top : stack - stack % PAGE + PAGE;
}

/* Copies a piece of the stack. How many words of it there are, no more than a piece has. */
static size_t copy_piece(uint64_t at, uint64_t mapped)
{
    if (at < mapped) {
        size_t n = (mapped - at < PIECE ? mapped - at : PIECE) / 8;
        const volatile uint64_t *words = (const volatile uint64_t *)(uintptr_t)at;
        for (size_t i = 0; i < n; i++)
            torch.piece[i] = words[i];
        return n;
    }
    struct iovec to = {torch.piece, PIECE}, from = {(void *)(uintptr_t)at, PIECE};
    ssize_t size = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    return size > 0 ? (size_t)size / 8 : 0;
}

void torch_callers_capture(uint64_t stack, struct torch_callers *out)
{
    out->n = 0;
    if (stack % 8 || __atomic_exchange_n(&torch.busy, true, __ATOMIC_ACQUIRE))
        return;
    uint32_t first = TORCH_CALLERS_MAX; /* of them are before the first word of libtorch_python */
    uint64_t mapped = mapped_until(stack);
    bool called = false;
    for (uint64_t at = stack; at < stack + WINDOW && !called && out->n < TORCH_CALLERS_MAX;) {
        size_t n = copy_piece(at, mapped);
        if (!n) /* the stack ends there */
            break;
        at += n * 8;
        for (size_t i = 0; i < n && out->n < TORCH_CALLERS_MAX && !called; i++) {
            uint64_t word = torch.piece[i];
            if (is_in(&torch.operators, word) && is_behind_call(word))
                out->addresses[out->n++] = word;
            else if (is_in(&torch.python, word) && is_behind_call(word)) {
                called = is_known_call(word);
                first = out->n < first ? out->n : first;
            }
        }
    }
    /* what else is there of libtorch_python is left of earlier calls, unless this one is unusual */
    if (!called && first < out->n)
        out->n = first;
    __atomic_store_n(&torch.busy, false, __ATOMIC_RELEASE);
}

/* ---- names ---- */

/* The name of an operator without that of its overload, if it is one that changes what it is given:
 * of "add__Tensor" "add_", of "__ior___Tensor" "__ior__". Its length; 0: it is none. */
static size_t in_place(const char *name, size_t size)
{
    for (size_t i = size; i-- > 1;)
        if (name[i] == '_' && name[i - 1] == '_' && i + 1 < size && name[i + 1] != '_')
            return i;
    return size > 1 && name[size - 1] == '_' ? size : 0;
}

/* The name of the operation at an address in at::_ops::NAME::call() or ::redispatch(), as the
 * Itanium ABI writes it. */
static void find_name(uint64_t address, char out[NAME_SIZE])
{
    static const char prefix[] = "_ZN2at4_ops";
    Dl_info info;
    int size = 0, digits = 0;

    out[0] = '\0';
    if (!dladdr((void *)(uintptr_t)(address - 1), &info) || !info.dli_sname ||
        strncmp(info.dli_sname, prefix, sizeof prefix - 1))
        return;
    const char *name = info.dli_sname + sizeof prefix - 1;
    if (sscanf(name, "%3d%n", &size, &digits) != 1 || size <= 0 ||
        strlen(name) < (size_t)size + (size_t)digits)
        return;
    name += digits;
    const char *method = name + size;
    if (strncmp(method, "4call", 5) && strncmp(method, "10redispatch", 12))
        return;
    size_t length = in_place(name, (size_t)size);
    if (length && length < NAME_SIZE)
        snprintf(out, NAME_SIZE, "%.*s", (int)length, name);
}

/* find_name() of an address. To look a name up takes a millisecond, so the last ones are kept. */
static const char *name_of(uint64_t address)
{
    static struct {
        uint64_t address;
        char name[NAME_SIZE];
    } * known;
    static unsigned next;

    if (!known)
        known = calloc(KNOWN_MAX, sizeof *known);
    if (!known)
        return "";
    for (unsigned i = 0; i < KNOWN_MAX; i++)
        if (known[i].address == address)
            return known[i].name;
    __auto_type one = &known[next++ % KNOWN_MAX];
    one->address = address;
    find_name(address, one->name);
    return one->name;
}

void torch_callers_name(const struct torch_callers *callers, char out[TORCH_OPERATOR_MAX])
{
    char inner[NAME_SIZE] = "", outer[NAME_SIZE] = "";

    for (uint32_t i = 0; i < callers->n; i++) {
        const char *name = name_of(callers->addresses[i]);
        if (!*name)
            continue;
        snprintf(outer, sizeof outer, "%s", name);
        if (!*inner)
            snprintf(inner, sizeof inner, "%s", name);
    }
    snprintf(out, TORCH_OPERATOR_MAX, "%s%s%s", outer, strcmp(inner, outer) ? " by " : "",
             strcmp(inner, outer) ? inner : "");
}
