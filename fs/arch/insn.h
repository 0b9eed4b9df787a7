/* Machine code, as far as following a function's stack pointer needs it: the length of each
 * instruction, where it goes, and what it does to the stack pointer. Sources: Intel SDM volume 2,
 * appendix A; Arm Architecture Reference Manual, C4.1. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RSP and RBP, as x86 calls them, are the stack pointer and the frame pointer. */
enum insn_kind {
    INSN_OTHER,
    INSN_PUSH,           /* 8 bytes */
    INSN_POP,            /* 8 bytes, not into rsp */
    INSN_ADD_RSP,        /* rsp += value */
    INSN_SET_RBP,        /* rbp = rsp */
    INSN_SET_RBP_OFFSET, /* rbp = rsp + value */
    INSN_RSP_FROM_RBP,   /* rsp = rbp + value */
    INSN_LEAVE,          /* rsp = rbp, pop rbp */
    INSN_ALIGN_RSP,      /* rsp &= value */
    INSN_RSP_OTHER,      /* rsp becomes something else */
    INSN_CALL,           /* to target, 0 if it isn't known */
    INSN_CALL_SLOT,      /* to what the 8 bytes at target hold */
    INSN_JUMP,           /* to target, 0 if it isn't known */
    INSN_JUMP_SLOT,      /* to what the 8 bytes at target hold */
    INSN_BRANCH,         /* to target, or on */
    INSN_STOP,           /* returns or traps: nothing follows */
};

struct insn {
    enum insn_kind kind;
    uint8_t size; /* bytes, 1 to 15 */
    int64_t value;
    uint64_t target;
};

/* Decodes the instruction at pc, of which code[0..size) is a copy. False: none that is known, or
 * more than size bytes. */
bool insn_decode(const uint8_t *code, size_t size, uint64_t pc, struct insn *out);

/* Finds the call instruction that ends where code[0..size) ends, which is at pc. Several readings
 * can fit; out is the most telling: one with a target first. False: nothing that could be a
 * call. */
bool insn_call_before(const uint8_t *code, size_t size, uint64_t pc, struct insn *out);

/* Follows a stub that does nothing but jump, at code[0..size), which is at pc. False: it is none;
 * else out is the jump, to a target or by a slot. */
bool insn_stub(const uint8_t *code, size_t size, uint64_t pc, struct insn *out);
