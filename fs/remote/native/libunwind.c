/* unwind.h by libunwind, which reads the copied stack and the target's own tables through us.
 *
 * libunwind falls back on frame pointers and guesses where a function has no call frame
 * information. Here nothing is guessed: it is asked for a step only where there is such
 * information. */
#include "fs/remote/native/unwind.h"

#include <errno.h>
#include <libunwind.h>
#include <string.h>

/* libunwind exports it for those that bring accessors of their own, but no header declares it. */
int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t space, unw_word_t ip, unw_dyn_info_t *table,
                                       unw_proc_info_t *out, int need_unwind_info, void *arg);

/* One unwinding, as libunwind's callbacks see it. */
struct reading {
    struct unwinder *u;
    const struct stack_copy *copy;
    const struct native_regs *regs;
    bool unknown; /* a register was asked for whose value isn't known */
    bool above;   /* what lies above the copy was asked for */
};

static int find_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *out, int need,
                     void *arg)
{
    struct reading *r = arg;
    struct module *module = modules_find(&r->u->modules, ip);

    if (!module || !module->cfi.n)
        return -UNW_ENOINFO;
    unw_dyn_info_t table = {
        .start_ip = module->start,
        .end_ip = module->end,
        .format = UNW_INFO_FORMAT_REMOTE_TABLE,
        .u.rti = {.segbase = module->cfi.header,
                  .table_data = module->cfi.entries,
                  .table_len = module->cfi.n * 8ul / sizeof(unw_word_t)},
    };
    return UNW_OBJ(dwarf_search_unwind_table)(space, ip, &table, out, need, arg);
}

/* libunwind's own: it took the information from a pool and gives it back itself. */
static void put_info(unw_addr_space_t space, unw_proc_info_t *info, void *arg) {}

static int find_dynamic(unw_addr_space_t space, unw_word_t *out, void *arg) { return -UNW_ENOINFO; }

/* Whether what lies there stays as it is: tables beside code, not data that goes on changing. */
static bool in_image(const struct modules *modules, uint64_t addr)
{
    for (size_t i = 0; i < modules->n; i++) {
        const struct module *module = &modules->items[i];
        if (module->state == MODULE_READ && addr >= module->base && addr < module->image.end)
            return true;
    }
    return false;
}

static int access_memory(unw_addr_space_t space, unw_word_t addr, unw_word_t *value, int write,
                         void *arg)
{
    struct reading *r = arg;
    const struct stack_copy *copy = r->copy;

    if (write)
        return -UNW_EREADONLYREG;
    if (addr >= copy->low && copy->high - copy->low >= 8 && addr <= copy->high - 8) {
        memcpy(value, copy->data + (addr - copy->low), sizeof *value);
        return 0;
    }
    if (in_image(&r->u->modules, addr))
        return pages_read(&r->u->modules.pages, addr, value, sizeof *value) < 0 ? -UNW_EINVAL : 0;
    if (addr > copy->high - 8 && addr - copy->high < NATIVE_STACK_MAX)
        r->above = true;
    return -UNW_EINVAL;
}

static int access_register(unw_addr_space_t space, unw_regnum_t reg, unw_word_t *value, int write,
                           void *arg)
{
    struct reading *r = arg;

    if (write)
        return -UNW_EREADONLYREG;
    if (reg < 0 || reg >= REGS_N)
        return -UNW_EBADREG;
    if (!regs_know(r->regs, (unsigned)reg)) {
        r->unknown = true;
        return -UNW_EBADREG;
    }
    *value = r->regs->value[reg];
    return 0;
}

static int access_float(unw_addr_space_t space, unw_regnum_t reg, unw_fpreg_t *value, int write,
                        void *arg)
{
    return -UNW_EBADREG;
}

static int resume(unw_addr_space_t space, unw_cursor_t *cursor, void *arg) { return -UNW_EINVAL; }

static int find_name(unw_addr_space_t space, unw_word_t addr, char *name, size_t cap,
                     unw_word_t *offset, void *arg)
{
    return -UNW_ENOINFO;
}

static unw_accessors_t accessors = {
    .find_proc_info = find_info,
    .put_unwind_info = put_info,
    .get_dyn_info_list_addr = find_dynamic,
    .access_mem = access_memory,
    .access_reg = access_register,
    .access_fpreg = access_float,
    .resume = resume,
    .get_proc_name = find_name,
};

static void forget(struct unwinder *u)
{
    if (u->kept)
        unw_destroy_addr_space(u->kept);
    u->kept = NULL;
}

/* Why there is no step from here. */
static enum native_end why_not(const struct reading *r, const struct pc *pc)
{
    if (!pc->module || !pc->module->base)
        return NATIVE_NO_MODULE;
    if (r->above && r->copy->cut)
        return NATIVE_SHORT;
    return r->unknown ? NATIVE_NO_REGISTER : NATIVE_UNREADABLE;
}

/* Steps to the caller. 0, or why there is none. */
static enum native_end step(struct reading *r, unw_cursor_t *cursor, const struct pc *pc,
                            struct native_frame *frame, bool *exact)
{
    unw_word_t cfa, ip;
    unw_proc_info_t info;

    if (find_info(r->u->kept, frame->pc - !frame->exact, &info, 0, r) < 0)
        return pc->module && pc->module->base ? NATIVE_NO_INFO : NATIVE_NO_MODULE;
    r->unknown = r->above = false;
    int stepped = unw_step(cursor);
    if (stepped < 0)
        return why_not(r, pc);
    if (stepped == 0)
        return NATIVE_BASE;
    *exact = unw_is_signal_frame(cursor) > 0; /* it is where a signal interrupted it */
    if (unw_get_reg(cursor, UNW_REG_SP, &cfa) < 0 || unw_get_reg(cursor, UNW_REG_IP, &ip) < 0)
        return why_not(r, pc);
    if (!*exact && (cfa <= frame->sp || cfa & 7))
        return NATIVE_UNREADABLE;
    frame->cfa = cfa;
    return 0;
}

static enum native_end unwind_by_library(struct unwinder *u, const struct stack_copy *copy,
                                         const struct native_regs *regs,
                                         struct native_frame *frames, size_t max, size_t *n)
{
    struct reading r = {.u = u, .copy = copy, .regs = regs};
    unw_cursor_t cursor;
    enum native_end end = 0;
    bool exact = true;

    *n = 0;
    if (!u->kept) {
        u->kept = unw_create_addr_space(&accessors, 0);
        if (!u->kept)
            return NATIVE_UNREADABLE;
        unw_set_caching_policy(u->kept, UNW_CACHE_GLOBAL);
    }
    if (unw_init_remote(&cursor, u->kept, &r) < 0)
        return NATIVE_UNREADABLE;
    while (!end && *n < max) {
        unw_word_t ip, sp;
        if (unw_get_reg(&cursor, UNW_REG_IP, &ip) < 0 || unw_get_reg(&cursor, UNW_REG_SP, &sp) < 0)
            return NATIVE_UNREADABLE;
        struct native_frame *frame = &frames[(*n)++];
        *frame = (struct native_frame){
            .pc = ip, .sp = sp, .exact = exact, .eval = unwinder_in_eval(u, ip, exact)};
        end = step(&r, &cursor, unwinder_pc(u, ip, exact), frame, &exact);
    }
    return end ? end : NATIVE_LIMIT;
}

const struct unwind_engine unwind_libunwind = {.unwind = unwind_by_library, .forget = forget};
