/* Call frame information: where each function of a loaded module keeps its caller's registers.
 *
 * It lies in the module's memory (.eh_frame, sorted by .eh_frame_hdr) since C++ exceptions need it
 * there, so no file is opened. A row holds the rules for one program counter. Sources: the Linux
 * Standard Base, "Exception Frames"; DWARF 5, section 6.4; the ABI of the machine.
 * All of it is the target's and believed only as far as it stays within bounds. */
#pragma once

#include "fs/remote/memory/pages.h"
#include "fs/remote/native/regs.h"

/* The search table of one module. */
struct cfi_table {
    uint64_t header;  /* address of .eh_frame_hdr */
    uint64_t entries; /* address of its first entry */
    uint32_t n;
};

enum cfi_how {
    CFI_SAME,       /* the caller's value is the callee's */
    CFI_UNDEFINED,  /* it is lost; of the return address: there is no caller */
    CFI_SAVED,      /* it lies at CFA + offset */
    CFI_OFFSET,     /* it is CFA + offset */
    CFI_REGISTER,   /* it is register `reg` + offset */
    CFI_EXPR_SAVED, /* it lies where an expression says; `size` bytes at row.base + offset */
    CFI_EXPR,       /* it is what an expression says */
};

struct cfi_rule {
    uint8_t how;
    uint8_t reg;
    uint16_t size;
    int32_t offset;
};

struct cfi_row {
    uint64_t start, end; /* of the function */
    uint64_t base;       /* of expressions */
    bool signal;         /* the kernel put this frame there to deliver a signal */
    struct cfi_rule cfa; /* canonical frame address: the caller's stack pointer */
    struct cfi_rule regs[REGS_N];
};

/* Reads the head of the .eh_frame_hdr at addr. -ENOENT: it has no search table; -EFAULT. */
int cfi_table_read(struct pages *pages, uint64_t addr, struct cfi_table *out);

/* The rules for pc. -ENOENT: none there; -ENOEXEC: not understood; -EFAULT, -ESRCH, -EPERM,
 * -ENOMEM. */
int cfi_find(struct pages *pages, const struct cfi_table *table, uint64_t pc, struct cfi_row *out);

/* Evaluates a rule's expression. `initial` is pushed first unless NULL (the CFA, for registers).
 * load reads a word of the stack. -ENODATA: it needs a register that isn't known; -EFAULT: it
 * needs memory that isn't readable; -ENOEXEC: not understood. */
typedef bool cfi_load(void *arg, uint64_t addr, uint64_t *out);
int cfi_evaluate(struct pages *pages, const struct cfi_row *row, const struct cfi_rule *rule,
                 const struct native_regs *regs, const uint64_t *initial, cfi_load *load, void *arg,
                 uint64_t *out);
