#include "fs/sql/regexp.h"

#include "fs/cleanup.h"
#include "fs/sql/format.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define DEPTH_MAX 64       /* brackets in brackets */
#define REPEAT_MAX 1000    /* of {m,n} */
#define RANGES_MAX 32      /* in one [...] */
#define STOP_EVERY 4096    /* characters */

/* One place in the pattern. */
struct regexp_node {
    enum {
        NODE_ONE,      /* a character in (or, `not`, outside of) ranges, then next */
        NODE_SPLIT,    /* next or other */
        NODE_EMPTY,    /* next */
        NODE_BEGIN, NODE_END, NODE_WORD, NODE_NO_WORD, /* if that holds here: next */
        NODE_MATCH,
    } kind;
    bool not;
    uint16_t next, other;
    uint16_t first, n; /* ranges */
};

struct range {
    uint32_t low, high;
};

struct regexp {
    struct regexp_node nodes[REGEXP_NODES_MAX];
    size_t n;
    struct range ranges[REGEXP_NODES_MAX];
    size_t nranges;
    uint16_t start;
    bool ignore_case;
    /* of a search: the places it is at, each once */
    uint16_t now[REGEXP_NODES_MAX], then[REGEXP_NODES_MAX], todo[2 * REGEXP_NODES_MAX];
    uint32_t seen[REGEXP_NODES_MAX], generation;
};

/* A piece of the pattern: from its first node to its last, whose next is still open. */
struct piece {
    uint16_t first, last;
};

struct parser {
    struct regexp *regexp;
    const char *at, *end;
    unsigned depth;
    int error;
    const char *why;
};

static uint32_t take_character(const char **at, const char *end)
{
    const unsigned char *p = (const unsigned char *)*at;
    size_t n = utf8_length(p, (size_t)(end - *at));

    *at += n ? n : 1;
    switch (n) {
    case 2: return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
    case 3: return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    case 4:
        return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 |
               (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
    }
    return n ? *p : 0x110000u + *p; /* a byte that is no UTF-8 is like no character */
}

/* ---- parsing ---- */

static struct piece fail(struct parser *p, int error, const char *why)
{
    if (!p->error) {
        p->error = error;
        p->why = why;
    }
    return (struct piece){0};
}

static uint16_t add_node(struct parser *p, struct regexp_node node)
{
    if (p->regexp->n == REGEXP_NODES_MAX) {
        fail(p, -E2BIG, "the pattern is too large");
        return 0;
    }
    p->regexp->nodes[p->regexp->n] = node;
    return (uint16_t)p->regexp->n++;
}

static struct piece single(struct parser *p, struct regexp_node node)
{
    uint16_t at = add_node(p, node);
    return (struct piece){at, at};
}

static void add_range(struct parser *p, uint32_t low, uint32_t high)
{
    struct regexp *r = p->regexp;

    if (r->nranges == ARRAY_SIZE(r->ranges))
        fail(p, -E2BIG, "the pattern is too large");
    else
        r->ranges[r->nranges++] = (struct range){low, high};
}

/* The ranges of \d, \w and \s. False: it is none of them. */
static bool add_class(struct parser *p, char name)
{
    switch (name | 32) {
    case 'd': add_range(p, '0', '9'); return true;
    case 's':
        add_range(p, '\t', '\r');
        add_range(p, ' ', ' ');
        return true;
    case 'w':
        add_range(p, '0', '9');
        add_range(p, 'A', 'Z');
        add_range(p, '_', '_');
        add_range(p, 'a', 'z');
        add_range(p, 0x80, 0x10ffff);
        return true;
    }
    return false;
}

static uint32_t escaped(uint32_t c)
{
    return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
}

static struct piece ranges_from(struct parser *p, size_t first, bool not)
{
    return single(p, (struct regexp_node){.kind = NODE_ONE, .not = not, .first = (uint16_t)first,
                                          .n = (uint16_t)(p->regexp->nranges - first)});
}

static struct piece parse_set(struct parser *p)
{
    size_t first = p->regexp->nranges;
    bool not = p->at < p->end && *p->at == '^';

    p->at += not;
    for (bool begin = true; p->at < p->end && (*p->at != ']' || begin); begin = false) {
        uint32_t low = take_character(&p->at, p->end), high;
        if (p->regexp->nranges - first >= RANGES_MAX)
            return fail(p, -E2BIG, "too many characters in one [...]");
        if (low == '\\' && p->at < p->end) {
            if (add_class(p, *p->at)) {
                p->at++;
                continue;
            }
            low = escaped(take_character(&p->at, p->end));
        }
        high = low;
        if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            high = take_character(&p->at, p->end);
            if (high == '\\' && p->at < p->end)
                high = escaped(take_character(&p->at, p->end));
        }
        if (high < low)
            return fail(p, -EINVAL, "a range in [...] is the wrong way around");
        add_range(p, low, high);
    }
    if (p->at == p->end)
        return fail(p, -EINVAL, "a [ has no ]");
    p->at++;
    return ranges_from(p, first, not);
}

static struct piece parse_escape(struct parser *p)
{
    size_t first = p->regexp->nranges;

    if (p->at == p->end)
        return fail(p, -EINVAL, "nothing follows the \\");
    if (*p->at == 'b' || *p->at == 'B') {
        bool word = *p->at++ == 'b';
        return single(p, (struct regexp_node){.kind = word ? NODE_WORD : NODE_NO_WORD});
    }
    if (add_class(p, *p->at))
        return ranges_from(p, first, !(*p->at++ & 32));
    uint32_t c = escaped(take_character(&p->at, p->end));
    add_range(p, c, c);
    return ranges_from(p, first, false);
}

static struct piece parse_either(struct parser *p);

static struct piece parse_atom(struct parser *p)
{
    size_t first = p->regexp->nranges;
    uint32_t c = take_character(&p->at, p->end);

    switch (c) {
    case '(':
        if (++p->depth > DEPTH_MAX)
            return fail(p, -E2BIG, "too many brackets in brackets");
        struct piece inner = parse_either(p);
        p->depth--;
        if (p->at == p->end || *p->at != ')')
            return fail(p, -EINVAL, "a ( has no )");
        p->at++;
        return inner;
    case '[': return parse_set(p);
    case '\\': return parse_escape(p);
    case '^': return single(p, (struct regexp_node){.kind = NODE_BEGIN});
    case '$': return single(p, (struct regexp_node){.kind = NODE_END});
    case '*':
    case '+':
    case '?': return fail(p, -EINVAL, "there is nothing to repeat");
    case '.': return ranges_from(p, first, true); /* none but no character */
    }
    add_range(p, c, c);
    return ranges_from(p, first, false);
}

static void link_to(struct parser *p, uint16_t from, uint16_t to)
{
    p->regexp->nodes[from].next = to;
}

static struct piece optional(struct parser *p, struct piece inner)
{
    uint16_t end = add_node(p, (struct regexp_node){.kind = NODE_EMPTY});
    uint16_t split = add_node(p, (struct regexp_node){.kind = NODE_SPLIT, .next = inner.first,
                                                      .other = end});
    link_to(p, inner.last, end);
    return (struct piece){split, end};
}

static struct piece repeated(struct parser *p, struct piece inner, bool at_least_once)
{
    uint16_t end = add_node(p, (struct regexp_node){.kind = NODE_EMPTY});
    uint16_t split = add_node(p, (struct regexp_node){.kind = NODE_SPLIT, .next = inner.first,
                                                      .other = end});
    link_to(p, inner.last, split);
    return (struct piece){at_least_once ? inner.first : split, end};
}

static struct piece joined(struct parser *p, struct piece a, struct piece b)
{
    link_to(p, a.last, b.first);
    return (struct piece){a.first, b.last};
}

static bool parse_number(struct parser *p, unsigned *out)
{
    const char *begin = p->at;

    for (*out = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9' && *out <= REPEAT_MAX; p->at++)
        *out = *out * 10 + (unsigned)(*p->at - '0');
    return p->at > begin;
}

/* {m}, {m,} and {m,n}: the atom, parsed again for each time. */
static struct piece parse_counted(struct parser *p, const char *atom, struct piece once)
{
    unsigned low, high;

    p->at++;
    if (!parse_number(p, &low))
        return fail(p, -EINVAL, "a { wants a number: {2}, {2,}, {2,5}");
    high = low;
    bool open = false;
    if (p->at < p->end && *p->at == ',') {
        p->at++;
        open = !parse_number(p, &high);
    }
    if (p->at == p->end || *p->at != '}' || high > REPEAT_MAX || low > REPEAT_MAX ||
        (!open && high < low))
        return fail(p, -EINVAL, "a { is followed by numbers up to 1000 and a }");
    const char *after = p->at + 1;
    struct piece all = single(p, (struct regexp_node){.kind = NODE_EMPTY});
    unsigned times = open ? low + 1 : high;
    for (unsigned i = 0; i < times && !p->error; i++) {
        struct piece one = once;
        if (i) {
            p->at = atom;
            one = parse_atom(p);
        }
        if (open && i == low)
            one = repeated(p, one, false);
        else if (i >= low)
            one = optional(p, one);
        all = joined(p, all, one);
    }
    p->at = after;
    return all;
}

static struct piece parse_repeated(struct parser *p)
{
    const char *atom = p->at;
    struct piece piece = parse_atom(p);

    while (!p->error && p->at < p->end) {
        if (*p->at == '*' || *p->at == '+')
            piece = repeated(p, piece, *p->at++ == '+');
        else if (*p->at == '?') {
            p->at++;
            piece = optional(p, piece);
        } else if (*p->at == '{') {
            return parse_counted(p, atom, piece);
        } else {
            break;
        }
    }
    return piece;
}

static struct piece parse_sequence(struct parser *p)
{
    struct piece all = single(p, (struct regexp_node){.kind = NODE_EMPTY});

    while (!p->error && p->at < p->end && *p->at != '|' && *p->at != ')')
        all = joined(p, all, parse_repeated(p));
    return all;
}

static struct piece parse_either(struct parser *p)
{
    struct piece all = parse_sequence(p);

    while (!p->error && p->at < p->end && *p->at == '|') {
        p->at++;
        struct piece other = parse_sequence(p);
        uint16_t end = add_node(p, (struct regexp_node){.kind = NODE_EMPTY});
        uint16_t split = add_node(p, (struct regexp_node){.kind = NODE_SPLIT, .next = all.first,
                                                          .other = other.first});
        link_to(p, all.last, end);
        link_to(p, other.last, end);
        all = (struct piece){split, end};
    }
    return all;
}

int regexp_new(const char *pattern, size_t size, struct regexp **out, const char **why)
{
    struct regexp *regexp = calloc(1, sizeof *regexp);
    if (!regexp)
        return -ENOMEM;
    struct parser p = {.regexp = regexp, .at = pattern, .end = pattern + size};
    if (size >= 4 && !memcmp(pattern, "(?i)", 4)) {
        regexp->ignore_case = true;
        p.at += 4;
    }
    struct piece all = parse_either(&p);
    if (!p.error && p.at < p.end)
        fail(&p, -EINVAL, "a ) has no (");
    uint16_t match = add_node(&p, (struct regexp_node){.kind = NODE_MATCH});
    if (p.error) {
        *why = p.why;
        regexp_free(regexp);
        return p.error;
    }
    link_to(&p, all.last, match);
    regexp->start = all.first;
    *out = regexp;
    return 0;
}

void regexp_free(struct regexp *regexp) { free(regexp); }

/* ---- searching ---- */

#define NOTHING UINT32_MAX /* before the first and behind the last character */

static bool is_word(uint32_t c)
{
    return c != NOTHING && (c >= 0x80 || c == '_' || (c >= '0' && c <= '9') ||
                            ((c | 32) >= 'a' && (c | 32) <= 'z'));
}

static bool in_ranges(const struct regexp *r, const struct regexp_node *node, uint32_t c)
{
    for (size_t i = node->first; i < (size_t)node->first + node->n; i++)
        if (c >= r->ranges[i].low && c <= r->ranges[i].high)
            return true;
    return false;
}

static bool accepts(const struct regexp *r, const struct regexp_node *node, uint32_t c)
{
    bool in = in_ranges(r, node, c);

    if (!in && r->ignore_case && (c | 32) >= 'a' && (c | 32) <= 'z')
        in = in_ranges(r, node, c ^ 32);
    return in != node->not;
}

/* Adds a place, and those it leads to without a character, to a list. True: one is the end. */
static bool enter(struct regexp *r, uint16_t place, uint32_t before, uint32_t after,
                  uint16_t *list, size_t *n)
{
    size_t todo = 0;

    r->todo[todo++] = place;
    while (todo) {
        uint16_t at = r->todo[--todo];
        const struct regexp_node *node = &r->nodes[at];
        bool edge = is_word(before) != is_word(after);
        if (r->seen[at] == r->generation)
            continue;
        r->seen[at] = r->generation;
        switch (node->kind) {
        case NODE_MATCH: return true;
        case NODE_ONE: list[(*n)++] = at; continue;
        case NODE_SPLIT: r->todo[todo++] = node->other; break;
        case NODE_EMPTY: break;
        case NODE_BEGIN:
            if (before != NOTHING)
                continue;
            break;
        case NODE_END:
            if (after != NOTHING)
                continue;
            break;
        case NODE_WORD:
        case NODE_NO_WORD:
            if (edge != (node->kind == NODE_WORD))
                continue;
            break;
        }
        r->todo[todo++] = node->next;
    }
    return false;
}

bool regexp_search(struct regexp *r, const char *text, size_t size, bool (*stop)(void *arg),
                   void *arg)
{
    const char *at = text, *end = text + size;
    uint32_t before = NOTHING, c = size ? take_character(&at, end) : NOTHING;
    size_t n = 0, read = 0;

    memset(r->seen, 0, sizeof r->seen);
    r->generation = 1;
    if (enter(r, r->start, before, c, r->now, &n))
        return true;
    while (c != NOTHING) {
        uint32_t following = at < end ? take_character(&at, end) : NOTHING;
        size_t nthen = 0;
        r->generation++;
        for (size_t i = 0; i < n; i++) {
            const struct regexp_node *node = &r->nodes[r->now[i]];
            if (accepts(r, node, c) && enter(r, node->next, c, following, r->then, &nthen))
                return true;
        }
        if (enter(r, r->start, c, following, r->then, &nthen)) /* it may begin anywhere */
            return true;
        memcpy(r->now, r->then, nthen * sizeof *r->then);
        n = nthen;
        c = following;
        if (++read % STOP_EVERY == 0 && stop && stop(arg))
            return false;
    }
    return false;
}
