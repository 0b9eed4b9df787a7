#include "fs/remote/moment/thread_stack.h"
#include "tests/unit/check.h"

#include <string.h>

static struct raw_frame frame(uint64_t addr) { return (struct raw_frame){.addr = addr}; }

static void group_is(const struct thread_stack *s, size_t i, size_t nframes, uint64_t anchor)
{
    CHECK(i < s->ngroups);
    CHECK_INT(s->groups[i].nframes, nframes);
    CHECK_INT(s->groups[i].anchor, anchor);
}

static struct code codes[] = {
    {.state = CODE_LOADED},
    {.state = CODE_LOADED, .whose = CODE_AGENTS},
    {.state = CODE_LOADED, .whose = CODE_AGENTS_ENTRY},
};

/* Checks which frames are left of a stack, all of one call but for the innermost: "p" is the
 * program's, "a" the agent's, "e" what it enters by. */
static void left_is(const char *stack, size_t from)
{
    size_t n = strlen(stack);
    struct raw_frame frames[16] = {0};
    struct stack_anchor anchors[] = {{0x7000, 1}, {0x8000, n}};
    struct stack one = {.frames = frames, .n = n, .anchors = anchors, .nanchors = 2};
    struct thread_stack s;

    for (size_t i = 0; i < n; i++)
        frames[i] = (struct raw_frame){.addr = i,
                                       .info = &codes[stack[i] == 'a'   ? 1
                                                      : stack[i] == 'e' ? 2
                                                                        : 0]};
    CHECK_INT(thread_stack_collect((const struct stack *[]){&one}, 1, &s), 0);
    thread_stack_hide_agents(&s);
    CHECK_INT(s.n, n - from);
    CHECK_INT(s.frames[0].addr, from);
    group_is(&s, 0, from ? 0 : 1, 0x7000);
    group_is(&s, 1, n - (from ? from : 1), 0x8000);
    thread_stack_deinit(&s);
}

static void check_agents(void)
{
    left_is("ppp", 0);
    left_is("pape", 0);  /* a thread of the agent's */
    left_is("aaap", 3);  /* a hook of ours */
    left_is("papp", 0);  /* one further out: what it calls is the program's */
    left_is("paepp", 3); /* an eval, and what that calls */
    left_is("pepeap", 5);
    codes[2].state = CODE_UNREADABLE;
    left_is("pep", 0);
}

int main(void)
{
    struct raw_frame outer[] = {frame(1), frame(2), frame(3), frame(4)};
    struct stack_anchor outer_anchors[] = {{0x7000, 1}, {0x9000, 4}};
    struct stack main_interp = {
        .tstate = 10, .frames = outer, .n = 4, .anchors = outer_anchors, .nanchors = 2};
    struct raw_frame inner[] = {frame(5), frame(6)};
    struct stack_anchor inner_anchors[] = {{0x8000, 2}};
    struct stack sub_interp = {.tstate = 20,
                               .frames = inner,
                               .n = 2,
                               .anchors = inner_anchors,
                               .nanchors = 1,
                               .torn = true,
                               .end = STACK_LIMIT};
    struct thread_stack s;

    /* one thread state: its groups as they are */
    CHECK_INT(thread_stack_collect((const struct stack *[]){&main_interp}, 1, &s), 0);
    CHECK(s.top == &main_interp);
    CHECK_INT(s.n, 4);
    CHECK_INT(s.ngroups, 2);
    group_is(&s, 0, 1, 0x7000);
    group_is(&s, 1, 3, 0x9000);
    thread_stack_deinit(&s);

    /* two, whose calls alternate on one C stack: by address, innermost lowest */
    CHECK_INT(thread_stack_collect((const struct stack *[]){&sub_interp, &main_interp}, 2, &s), 0);
    CHECK(s.top == &main_interp);
    CHECK_INT(s.n, 6);
    CHECK_INT(s.frames[0].addr, 1);
    CHECK_INT(s.frames[1].addr, 5);
    CHECK_INT(s.frames[2].addr, 6);
    CHECK_INT(s.frames[3].addr, 2);
    group_is(&s, 1, 2, 0x8000);
    CHECK(s.torn);
    CHECK_INT(s.end, STACK_LIMIT);
    thread_stack_deinit(&s);

    /* without anchors (3.9), and where the chain of anchors broke: one group a frame */
    main_interp.nanchors = 0;
    CHECK_INT(thread_stack_collect((const struct stack *[]){&main_interp}, 1, &s), 0);
    CHECK_INT(s.ngroups, 4);
    group_is(&s, 3, 1, 0);
    thread_stack_deinit(&s);
    main_interp.nanchors = 1;
    CHECK_INT(thread_stack_collect((const struct stack *[]){&main_interp}, 1, &s), 0);
    CHECK_INT(s.ngroups, 4);
    group_is(&s, 0, 1, 0x7000);
    group_is(&s, 1, 1, 0);
    thread_stack_deinit(&s);

    /* an anchor that lies about where its group ends */
    main_interp.nanchors = 2;
    outer_anchors[1].end = 1000;
    CHECK_INT(thread_stack_collect((const struct stack *[]){&main_interp}, 1, &s), 0);
    CHECK_INT(s.n, 4);
    thread_stack_deinit(&s);

    check_agents();
    CHECK_INT(thread_stack_collect(NULL, 0, &s), 0);
    CHECK(!s.top && !s.n && !s.ngroups);
    thread_stack_deinit(&s);
    return 0;
}
