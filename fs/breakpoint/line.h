/* The grammar of <pid>/breakpoints. One line is
 *
 *   [ID:] [here] [disabled] [on RANKS] [stop [all] [for DURATION]|log] LOCATION [{EXPR[, EXPR]...}]
 *     [if EXPR] [after N] [every N] [x COUNT]
 *   LOCATION = FILE:LINE | [MODULE.]FUNC() | return [MODULE.]FUNC() | raise [[MODULE.]TYPE]
 * [in|leaving PATH|own] | watch EXPR [in TID[/DEPTH]] [hw=perf|ptrace] | watch 0xADDR:LEN
 * [hw=perf|ptrace] | breakpoint() | nan [EXPR]
 *
 * of nan the first hit is the last one, unless it says `x COUNT`;
 * or, to take something out, [on RANKS] -ID or -LOCATION, or, to switch off or on again what is in
 * the set, [on RANKS] disable ID... or enable ID.... `#` begins a comment, but not in a
 * string. FILE stands in quotes, '' or "", where it has a blank, a `{` or a `#` in it. Tabs are
 * blanks. */
#pragma once

#include "agent/wire/proto.h"
#include "fs/base/text.h"

/* A part of the line. */
struct words {
    const char *text;
    size_t size; /* 0: there is no such part */
};

struct breakpoint_text {
    uint32_t id;               /* 0: none is said */
    bool here;                 /* it lives as long as the file that it is written to is open */
    struct words ranks;        /* 0,2-3: only these ranks of a job; size 0: any process */
    bool remove;               /* -ID, or, without one, -LOCATION */
    struct words ids;          /* of `disable` and `enable`: 3 4; size 0: it is neither */
    bool disabled;             /* it is `disable`, or what is set is not armed */
    enum breakpoint_kind kind; /* of the location; not of -ID, `disable` and `enable` */
    enum breakpoint_action action;
    enum watch_route route;
    bool all;           /* of stop: the other threads are paused, too */
    struct words hold;  /* of `stop for` */
    uint64_t stop_ns;   /* the same; 0: it doesn't say */
    struct words where; /* FILE, [MODULE.]FUNC, [MODULE.]TYPE or EXPR */
    uint32_t line;
    uint64_t address;
    uint32_t length;
    uint32_t ncaptures;
    struct words captures[PROTO_CAPTURES_MAX];
    struct words condition;
    struct words within;          /* of raise: PATH, or own */
    bool leaving;                 /* of raise: as it leaves that */
    uint32_t tid, depth;          /* of watch: the frame that names are looked up in; tid 0: none */
    uint64_t after, every, count; /* 0: none */
};

/* What is wrong with a line. */
struct complaint {
    const char *at;   /* in it, or its end */
    const char *what; /* words for people */
};

/* Reads one line, without its newline; what is read points into it. 1: there is something; 0: it is
 * empty, or a comment; -EINVAL: *why says what is wrong. */
int breakpoint_text_read(const char *line, size_t size, struct breakpoint_text *out,
                         struct complaint *why);

/* Takes the first id out of those of `disable` or `enable`. False: there is none any more. */
bool breakpoint_text_next_id(struct words *ids, uint32_t *id);

/* Writes it, without the id, `here` and `disabled`, in the one way in which all that mean the same
 * words are written. Returns how far behind the beginning its location begins. */
size_t breakpoint_text_print(const struct breakpoint_text *breakpoint, struct text *out);
/* breakpoint_text_print() of the location alone. */
void breakpoint_text_location(const struct breakpoint_text *breakpoint, struct text *out);
