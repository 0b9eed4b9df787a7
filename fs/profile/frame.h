/* A frame of a profile: what a stack is made of. */
#pragma once

enum profile_frame_kind {
    PROFILE_PYTHON,
    PROFILE_NATIVE,
    PROFILE_WORD, /* no code: a reason or a name in brackets, `[futex]`, `[other]`, `[task NAME]` */
};

struct profile_frame {
    enum profile_frame_kind kind;
    const char *func; /* a qualified name, a symbol, the word with its brackets */
    const char *file; /* its source; of a native one its module's base name; "" of a word */
    int first_line;   /* of its code; 0: unknown */
    int line;         /* that it is at; 0: unknown */
};
