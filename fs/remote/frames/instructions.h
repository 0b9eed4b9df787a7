/* The bytecode of a code object, an instruction at a time.
 *
 * An instruction that the interpreter has specialized, or that is monitored, is told as the one it
 * was compiled to. What each opcode is comes from opcodes_table.h, which opcodes_row.py makes of
 * what the module dis of each version knows. */
#pragma once

#include "agent/cpython/offsets.h"
#include "fs/remote/memory/view.h"

#define BYTECODE_MAX (1u << 20) /* bytes of one code object that are looked at */

/* The letters of opcodes_table.h. "Variable" is a slot of the frame (slots.h). */
enum instruction_kind {
    INSTRUCTION_UNKNOWN = '?', /* none, or one that hides another: a line that is monitored */
    INSTRUCTION_OTHER = '.',
    INSTRUCTION_LOAD_FAST = 'f',       /* arg: the variable */
    INSTRUCTION_LOAD_FAST_TWICE = 'F', /* arg: two variables, of 4 bits each; the last is on top */
    INSTRUCTION_STORE_FAST = 's',      /* arg: the variable; also where it is deleted */
    INSTRUCTION_STORE_LOAD_FAST = 'S', /* arg: as of LOAD_FAST_TWICE: stored, loaded */
    INSTRUCTION_STORE_FAST_TWICE = 'T',
    INSTRUCTION_LOAD_DEREF = 'd', /* arg: a cell or free variable; up to 3.10 counted by itself */
    INSTRUCTION_STORE_DEREF = 'D',
    INSTRUCTION_LOAD_GLOBAL = 'g', /* arg, as in those that follow: index in co_names */
    INSTRUCTION_LOAD_NAME = 'n',
    INSTRUCTION_STORE_NAME = 'N', /* or a global one */
    INSTRUCTION_LOAD_ATTR = 'a',  /* or a method */
    INSTRUCTION_STORE_ATTR = 'A',
    INSTRUCTION_CALL = 'c',         /* arg: how many arguments */
    INSTRUCTION_PREPARE_CALL = 'p', /* of the call that follows */
    INSTRUCTION_SETUP_WITH = 'w',   /* up to 3.10: a block begins, target: its handler */
    INSTRUCTION_SETUP_BLOCK = 'x',
    INSTRUCTION_JUMP = 'J', /* these go to target, in small letters or to what follows */
    INSTRUCTION_JUMP_BACKWARD = 'B',
    INSTRUCTION_JUMP_ABSOLUTE = 'K',
    INSTRUCTION_JUMP_IF = 'j',
    INSTRUCTION_JUMP_BACKWARD_IF = 'b',
    INSTRUCTION_JUMP_ABSOLUTE_IF = 'k',
    INSTRUCTION_RETURN = 'r',       /* or raise: nothing follows */
    INSTRUCTION_EXTENDED_ARG = 'e', /* is never told by itself: it is a part of the next one */
};

#define NO_TARGET UINT32_MAX

/* Places are byte offsets in the bytecode. */
struct instruction {
    uint32_t at, end; /* with what extends its argument, and its caches */
    enum instruction_kind kind;
    uint32_t arg;
    uint32_t target; /* of a jump or a block, or NO_TARGET */
};

struct bytecode {
    const uint8_t *bytes; /* the view's */
    uint32_t size;
    uint32_t version; /* as offsets->version, without the micro version */
    const struct opcodes *opcodes;
};

/* -EFAULT: not readable; -EOPNOTSUPP: of a version that isn't known; -E2BIG. */
int bytecode_read(struct view *view, const struct offsets *offsets, uint64_t code,
                  struct bytecode *out);
/* The instruction that begins at `at`. False: none does, or it is INSTRUCTION_UNKNOWN. */
bool bytecode_next(const struct bytecode *code, uint32_t at, struct instruction *out);
/* Whether what follows it may run after it. */
bool instruction_falls_through(const struct instruction *instruction);
