#include "fs/remote/moment/thread_stack.h"
#include "tests/unit/check.h"

static struct raw_frame frame(uint64_t addr) { return (struct raw_frame){.addr = addr}; }

static void group_is(const struct thread_stack *s, size_t i, size_t nframes, uint64_t anchor)
{
    CHECK(i < s->ngroups);
    CHECK_INT(s->groups[i].nframes, nframes);
    CHECK_INT(s->groups[i].anchor, anchor);
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

    CHECK_INT(thread_stack_collect(NULL, 0, &s), 0);
    CHECK(!s.top && !s.n && !s.ngroups);
    thread_stack_deinit(&s);
    return 0;
}
