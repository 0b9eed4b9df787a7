#include "fs/format/tasks.h"
#include "tests/unit/asyncio_world.h"
#include "tests/unit/check.h"

#include <errno.h>

static struct world world;
static struct tasks tasks;
static struct code_cache *codes;

/* The tree with addresses replaced by the names of what stands there. */
static char *show(struct world *w)
{
    const struct {
        uint64_t addr;
        const char *name;
    } names[] = {
        {w->parent, "PARENT"},
        {w->child, "CHILD"},
        {w->busy, "BUSY"},
        {w->future, "FUTURE"},
    };
    static char shown[1 << 16];
    struct text text = TEXT_INIT;
    size_t n = 0;

    CHECK_INT(world_read(w, codes, &tasks), 0);
    CHECK_INT(tasks_tree_add(&tasks, &text), 0);
    CHECK(text.size < sizeof shown);
    for (const char *p = text.data ? text.data : ""; *p;) {
        char *end = NULL;
        uint64_t addr = strncmp(p, "0x7f", 4) ? 0 : strtoull(p, &end, 16);
        const char *name = "ADDRESS";
        for (size_t i = 0; addr && i < sizeof names / sizeof *names; i++)
            if (names[i].addr == addr)
                name = names[i].name;
        if (addr) {
            n += (size_t)sprintf(shown + n, "%s", name);
            p = end;
        } else {
            shown[n++] = *p++;
        }
    }
    shown[n] = 0;
    text_deinit(&text);
    return shown;
}

#define LOOP "Loop ADDRESS (_asyncio.Future) [not running]\n"
#define BUSY                           \
 "  Task BUSY (busy) [running] step\n" \
 "    step (/w/app.py:40)\n"           \
 "    crunch (/w/app.py:50)\n"
#define PARENT                              \
 "  Task PARENT (parent) [waiting] outer\n" \
 "    outer (/w/app.py:10)\n"               \
 "    inner (/w/app.py:20)\n"
#define CHILD                               \
 "    Task CHILD (child) [waiting] waits\n" \
 "      waits (/w/app.py:30)\n"             \
 "      <_asyncio.Future object at FUTURE>\n"

static void test_tree(uint32_t version)
{
    const char *tree = version < 0x030e0000 ? LOOP BUSY PARENT CHILD : LOOP PARENT CHILD BUSY;

    world_make(&world, version);
    CHECK_STR(show(&world), tree);
    CHECK(!tasks.torn && !tasks.cut);
    CHECK_STR(show(&world), tree); /* and once more into the same struct */
}

/* The future that child waits for is done; the task itself is done; it was asked to cancel. */
static void test_states(uint32_t version)
{
    world_make(&world, version);
    const struct asyncio *a = &world.asyncio;
    world_put32(&world, world.future + (uint32_t)a->state, 2);
    world_put32(&world, world.parent + (uint32_t)a->cancels, 1);
    world_put32(&world, world.busy + (uint32_t)a->state, 2);
    CHECK_STR(show(&world), LOOP "  Task PARENT (parent) [waiting, cancelling] outer\n"
                                 "    outer (/w/app.py:10)\n"
                                 "    inner (/w/app.py:20)\n"
                                 "    Task CHILD (child) [ready] waits\n"
                                 "      waits (/w/app.py:30)\n"
                                 "      <_asyncio.Future object at FUTURE>\n");
}

/* Two tasks await each other: each stands there once in full. */
static void test_circle(uint32_t version)
{
    world_make(&world, version);
    world_suspend(&world, world.waits, world.parent, false);
    world_put(&world, world.child + (uint32_t)world.asyncio.waiter, world.parent);
    const char *text = show(&world);
    if (version < 0x030e0000)
        CHECK_STR(text, LOOP BUSY "  Task CHILD (child) [waiting] waits\n"
                                  "    waits (/w/app.py:30)\n"
                                  "    Task PARENT (parent) [waiting] outer\n"
                                  "      outer (/w/app.py:10)\n"
                                  "      inner (/w/app.py:20)\n"
                                  "      Task CHILD (child) [waiting] waits (see above)\n");
    else
        CHECK_STR(text, LOOP BUSY "  Task PARENT (parent) [waiting] outer\n"
                                  "    outer (/w/app.py:10)\n"
                                  "    inner (/w/app.py:20)\n"
                                  "    Task CHILD (child) [waiting] waits\n"
                                  "      waits (/w/app.py:30)\n"
                                  "      Task PARENT (parent) [waiting] outer (see above)\n");
}

/* A coroutine that awaits itself, as no program can make it. */
static void test_endless_chain(uint32_t version)
{
    world_make(&world, version);
    world_suspend(&world, world.inner, world.outer, false);
    char *text = show(&world);
    CHECK(strstr(text, "    ... further frames cut ...\n"));
    for (size_t i = 0; i < tasks.n; i++)
        CHECK(tasks.items[i].nframes <= TASK_FRAMES_MAX);
    CHECK_INT(tasks.nframes, TASK_FRAMES_MAX + 3);
}

static void test_unreadable(uint32_t version)
{
    world_make(&world, version);
    uint64_t iframe = world.inner + (uint32_t)world.runtime.offsets.gen_iframe;

    /* the stack pointer leads nowhere */
    world_put(&world, iframe + (uint32_t)world.runtime.offsets.frame_stacktop, 0x7ffffffffff8);
    CHECK(strstr(show(&world), "    inner (/w/app.py:20)\n    ?? (unreadable: torn frame)\n"));
    CHECK(tasks.torn);
    /* the code object is none */
    world_put(&world, iframe + (uint32_t)world.runtime.offsets.frame_code, world.future);
    world.runtime.code_type = world.code_type;
    CHECK(strstr(show(&world), "    ?? (unreadable: code object)\n"));
    /* the coroutine is gone */
    world_put(&world, world.child + (uint32_t)world.asyncio.coro, 0x1000);
    CHECK(strstr(show(&world), "Task CHILD (child) [waiting] <?? object at 0x1000>\n"));
}

/* Lists that are broken say so; those that lead in circles end. */
static void test_list(void)
{
    world_make(&world, 0x030e0000);
    uint64_t node = world.child + (uint32_t)world.asyncio.node;
    uint64_t next = load64(world_at(&world, node));

    world_put(&world, node, 0x1000);
    show(&world);
    CHECK(tasks.torn);
    CHECK_INT(tasks.n, 2);
    world_put(&world, node, node);
    world_put(&world, node + 8, node);
    show(&world);
    CHECK(tasks.torn);
    world_put(&world, node, next);
    world_put(&world, node + 8, world.parent + (uint32_t)world.asyncio.node);
    show(&world);
    CHECK(!tasks.torn);

    /* one that is no task any more is still a line */
    world_put(&world, world.child + 8, world.str_type);
    CHECK(strstr(show(&world), "Task CHILD (\?\?) [unreadable] \?\?\n"));
}

/* A set with fewer entries than it claims, as while its table grows. */
static void test_set(void)
{
    world_make(&world, 0x030c0000);
    const struct offsets *o = &world.runtime.offsets;
    const uint64_t items[] = {world.parent};
    uint64_t set = world_set(&world, items, 1);

    world_put(&world, set + (uint32_t)o->set_used, 2);
    uint64_t module = world_object(&world, world.module_type, 64);
    world_put(&world, module + (uint32_t)o->module_dict, world_dict(&world, "_eager_tasks", set));
    world_put(&world, world.interp + (uint32_t)o->interp_modules,
              world_dict(&world, "asyncio.tasks", module));
    show(&world);
    CHECK(tasks.torn);
    CHECK_INT(tasks.n, 1);
}

static void test_debug_section(void)
{
    const uint64_t good[13] = {168,    136,   96,   108,  109,  128, 152,
                               226240, 10856, 1104, 1024, 1032, 1048};
    struct asyncio asyncio;

    CHECK_INT(asyncio_parse_debug((const uint8_t *)good, 16, &asyncio), 0);
    CHECK_INT(asyncio.waiter, 120);
    CHECK_INT(asyncio.state, 104);
    CHECK_INT(asyncio.interp_tasks, 10856);
    for (size_t i = 0; i < 13; i++) {
        uint64_t bad[13];
        memcpy(bad, good, sizeof bad);
        bad[i] = UINT64_MAX - 4;
        CHECK_INT(asyncio_parse_debug((const uint8_t *)bad, 16, &asyncio), -EINVAL);
        bad[i] = 8;
        CHECK_INT(asyncio_parse_debug((const uint8_t *)bad, 16, &asyncio), -EINVAL);
    }
}

/* 200 tasks, each awaiting the next: indented to a limit, and every one is there. */
static void test_deep_tree(void)
{
    enum { N = 200 };
    static struct task items[N];
    static struct task_edge edges[N];
    struct tasks deep = {.items = items, .n = N, .edges = edges, .nedges = N - 1};
    struct text text = TEXT_INIT;
    size_t lines = 0, widest = 0;

    for (uint32_t i = 0; i < N; i++) {
        items[i] = (struct task){.addr = 0x1000 + i,
                                 .state = TASK_WAITING,
                                 .loop = TASKS_NONE,
                                 .frames = TASKS_NONE,
                                 .awaiting = i,
                                 .nawaiting = i<N - 1, .nawaiters = i> 0};
        edges[i] = (struct task_edge){i, i + 1};
    }
    CHECK_INT(tasks_tree_add(&deep, &text), 0);
    for (const char *p = text.data; *p; p = strchr(p, '\n') + 1, lines++)
        if (strspn(p, " ") > widest)
            widest = strspn(p, " ");
    CHECK_INT(widest, 2 * (TASKS_TREE_DEPTH + 1));
    CHECK_INT(lines, 1 + N + (N - 1) / TASKS_TREE_DEPTH);
    text_deinit(&text);
}

int main(void)
{
    static const uint32_t versions[] = {0x030c0000, 0x030d0000, 0x030e0000, 0x030f0000};

    CHECK_INT(code_cache_new(&codes), 0);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        test_tree(versions[i]);
        test_states(versions[i]);
        test_circle(versions[i]);
        test_endless_chain(versions[i]);
        test_unreadable(versions[i]);
    }
    test_list();
    test_set();
    test_debug_section();
    test_deep_tree();
    tasks_deinit(&tasks);
    code_cache_free(codes);
    return 0;
}
