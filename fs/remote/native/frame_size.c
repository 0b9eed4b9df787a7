/* Explores the function's control flow: a way is an address and the distance from there to the
 * canonical frame address. Each address is passed at most twice, with different distances; both
 * are then possible as far as we can tell (code behind a call that never returns is not reached by
 * falling through), so only a distance that is the only one at pc counts. */
#include "fs/remote/native/frame_size.h"

#include "agent/arch/arch.h"
#include "agent/base/cleanup.h"
#include "fs/arch/insn.h"

#include <errno.h>
#include <stdbool.h>

#define WAYS_MAX 4096       /* waiting to be followed */
#define DEPTH_MAX (1 << 20) /* bytes of one frame */
#define NO_RBP INT32_MIN
#define ENTRY_DEPTH 8 /* at a function's entry: depths are above 0 */

struct way {
    uint32_t at;   /* offset of an instruction */
    int32_t depth; /* CFA - sp there, and what ENTRY_DEPTH has more than it is */
    int32_t rbp;   /* likewise of the frame pointer where the function has set it, else NO_RBP */
};

struct explorer {
    const uint8_t *code;
    size_t size;
    uint64_t start;
    int32_t (*seen)[2]; /* depths that passed each offset; 0: none */
    struct way *ways;
    size_t nways;
};

/* False: this way need not be followed from here. */
static bool note(struct explorer *e, const struct way *way)
{
    int32_t *seen = e->seen[way->at];

    for (int i = 0; i < 2; i++) {
        if (seen[i] == way->depth)
            return false;
        if (!seen[i]) {
            seen[i] = way->depth;
            return true;
        }
    }
    return false;
}

static int branch(struct explorer *e, const struct way *way, uint64_t target)
{
    if (target < e->start || target - e->start >= e->size)
        return 0; /* leaves the function */
    if (e->nways == WAYS_MAX)
        return -ENOENT;
    e->ways[e->nways] = *way;
    e->ways[e->nways++].at = (uint32_t)(target - e->start);
    return 0;
}

/* Applies an instruction to the way. False: the stack pointer is lost. */
static bool apply(struct way *way, const struct insn *insn)
{
    int64_t depth = way->depth;

    switch (insn->kind) {
    case INSN_PUSH: depth += 8; break;
    case INSN_POP: depth -= 8; break;
    case INSN_ADD_RSP: depth -= insn->value; break;
    case INSN_ALIGN_RSP:
        /* The canonical frame address is a multiple of 16, but of no more: System V ABI, 3.2.2. */
        if (insn->value != -16)
            return false;
        depth = (depth + 15) & ~15ll;
        break;
    case INSN_SET_RBP: way->rbp = way->depth; break;
    case INSN_SET_RBP_OFFSET: way->rbp = (int32_t)(way->depth - insn->value); break;
    case INSN_RSP_FROM_RBP: depth = way->rbp - insn->value; break;
    case INSN_LEAVE: depth = (int64_t)way->rbp - 8; break;
    case INSN_RSP_OTHER: return false;
    default: break;
    }
    if ((insn->kind == INSN_RSP_FROM_RBP || insn->kind == INSN_LEAVE) && way->rbp == NO_RBP)
        return false;
    if (depth < ENTRY_DEPTH || depth > DEPTH_MAX)
        return false;
    way->depth = (int32_t)depth;
    return true;
}

/* Follows a way until it ends or meets one that was seen. */
static int follow(struct explorer *e, struct way way)
{
    struct insn insn;

    while (way.at < e->size && note(e, &way)) {
        if (!insn_decode(e->code + way.at, e->size - way.at, e->start + way.at, &insn))
            return 0;
        if (insn.kind == INSN_STOP || insn.kind == INSN_JUMP_SLOT)
            return 0;
        if (insn.kind == INSN_JUMP)
            return insn.target ? branch(e, &way, insn.target) : 0;
        if (insn.kind == INSN_BRANCH) {
            int r = branch(e, &way, insn.target);
            if (r < 0)
                return r;
        }
        if (!apply(&way, &insn))
            return 0;
        way.at += insn.size;
    }
    return 0;
}

int frame_size(const uint8_t *code, size_t size, uint64_t start, uint64_t pc, int64_t *out)
{
    _cleanup_free_ int32_t(*seen)[2] = calloc(size ? size : 1, sizeof *seen);
    _cleanup_free_ struct way *ways = malloc(WAYS_MAX * sizeof *ways);
    struct explorer e = {.code = code, .size = size, .start = start, .seen = seen, .ways = ways};

    if (!seen || !ways)
        return -ENOMEM;
    if (size > FRAME_SIZE_CODE_MAX || pc < start || pc - start >= size)
        return -ENOENT;
    ways[e.nways++] = (struct way){0, ENTRY_DEPTH, NO_RBP};
    while (e.nways) {
        int r = follow(&e, ways[--e.nways]);
        if (r < 0)
            return r;
    }
    const int32_t *found = seen[pc - start];
    if (!found[0])
        return -ENOENT;
    if (found[1])
        return -EDOM;
    *out = found[0] - (ENTRY_DEPTH - ARCH_CALL_PUSHES);
    return 0;
}
