/* Each stack is drawn as letters, innermost first: e is a call of the evaluation loop, other
 * letters are native frames, upper case are Python frames, ! is a note. */
#include "fs/remote/moment/merge.h"
#include "tests/unit/check.h"

#define MAX 32

/* Frame i covers [1000 + 100 i, 1100 + 100 i). */
static size_t draw_native(const char *natives, struct native_frame *frames)
{
    size_t n = strlen(natives);
    for (size_t i = 0; i < n; i++)
        frames[i] = (struct native_frame){.sp = 1000 + 100 * i,
                                          .cfa = 1100 + 100 * i,
                                          .eval = natives[i] == 'e'};
    if (n)
        frames[n - 1].cfa = 0; /* the outermost one has no end */
    return n;
}

static const char *merged(const char *natives, enum native_end end,
                          const struct merge_group *groups, size_t ngroups)
{
    static char out[MAX];
    struct native_frame frames[MAX];
    struct merge_item items[MAX];
    size_t npython = 0;

    size_t nnative = draw_native(natives, frames);
    for (size_t i = 0; i < ngroups; i++)
        npython += groups[i].nframes;
    size_t n = merge_stacks(frames, nnative, end, groups, ngroups, items);
    CHECK(n <= MERGE_ITEMS(nnative, npython, ngroups) && n < MAX);
    for (size_t i = 0; i < n; i++)
        out[i] = items[i].kind == MERGE_PYTHON ? (char)('A' + items[i].index)
                 : items[i].kind != MERGE_NOTE ? natives[items[i].index]
                                               : '!';
    out[n] = 0;
    for (size_t i = 0; i < n; i++)
        CHECK(items[i].kind != MERGE_NOTE || items[i].note);
    return out;
}

#define BY_ANCHOR(natives, end, ...)                       \
 merged(natives, end, (struct merge_group[]){__VA_ARGS__}, \
        sizeof((struct merge_group[]){__VA_ARGS__}) / sizeof(struct merge_group))

static void test_anchors(void)
{
    /* two groups, C functions within, between and outside */
    CHECK_STR(BY_ANCHOR("abecdefg", NATIVE_BASE, {2, 1250}, {1, 1510}), "abABcdCfg");
    /* the frame that holds the anchor is replaced whatever its name */
    CHECK_STR(BY_ANCHOR("abxcdxfg", NATIVE_BASE, {2, 1250}, {1, 1510}), "abABcdCfg");
    /* a call that has no frames yet */
    CHECK_STR(BY_ANCHOR("eabecd", NATIVE_BASE, {1, 1350}), "abAcd");
    /* both groups in one native frame */
    CHECK_STR(BY_ANCHOR("aeb", NATIVE_BASE, {1, 1110}, {1, 1150}), "aABb");
    /* no Python, and nothing at all */
    CHECK_STR(merged("abc", NATIVE_BASE, NULL, 0), "abc");
    CHECK_STR(merged("abc", NATIVE_NO_INFO, NULL, 0), "abc!");
    CHECK_STR(merged("", NATIVE_RUNNING, NULL, 0), "!");
    /* the bounds of a frame: [sp, cfa) */
    CHECK_STR(BY_ANCHOR("aeb", NATIVE_BASE, {1, 1100}), "aAb");
    CHECK_STR(BY_ANCHOR("aeb", NATIVE_BASE, {1, 1199}), "aAb");
}

static void test_anchors_cut(void)
{
    /* native frames end before the second, the third group */
    CHECK_STR(BY_ANCHOR("abecd", NATIVE_NO_MODULE, {1, 1250}, {2, 1510}, {1, 1700}), "abAcd!BCD");
    /* before the first one */
    CHECK_STR(BY_ANCHOR("ab", NATIVE_NO_MODULE, {1, 1250}, {1, 1510}), "ab!AB");
    /* in the native frame that may hold the second one: its end isn't known */
    CHECK_STR(BY_ANCHOR("aece", NATIVE_NO_REGISTER, {1, 1150}, {1, 1350}), "aAc!B");
    /* none at all */
    CHECK_STR(BY_ANCHOR("", NATIVE_TORN, {1, 1250}, {2, 1510}), "!ABC");
}

static void test_anchors_lost(void)
{
    /* out of order: the second one lies further in */
    CHECK_STR(BY_ANCHOR("aebeced", NATIVE_BASE, {1, 1350}, {1, 1150}, {1, 1550}), "abA!BCd");
    /* on another stack, with a match behind it */
    CHECK_STR(BY_ANCHOR("aebecd", NATIVE_BASE, {1, 99}, {1, 1350}), "!ABcd");
    /* on another stack, and nothing behind it */
    CHECK_STR(BY_ANCHOR("aebc", NATIVE_BASE, {1, 1150}, {1, 99}), "aA!B");
    /* none has one: a compiler's frames; what is native stands apart, or nothing does */
    CHECK_STR(BY_ANCHOR("aebc", NATIVE_BASE, {1, 99}, {1, 98}), "!AB!aebc");
    CHECK_STR(BY_ANCHOR("", NATIVE_BASE, {1, 99}), "!A");
    CHECK_STR(BY_ANCHOR("abc", NATIVE_NO_INFO, {1, 99}), "!A!");
}

static void test_counts(void)
{
    const struct merge_group groups[] = {{1, 0}, {1, 0}, {1, 0}, {1, 0}};

    CHECK_STR(merged("aebeec", NATIVE_BASE, groups, 3), "aAbBCc");
    CHECK_STR(merged("aebec", NATIVE_BASE, groups, 2), "aAbBc");
    /* the innermost call is about to return */
    CHECK_STR(merged("aebec", NATIVE_BASE, groups, 1), "abAc");
    CHECK_STR(merged("ebec", NATIVE_BASE, groups, 1), "bAc");
    /* one more call than frames, but it has called something that runs */
    CHECK_STR(merged("abcebec", NATIVE_BASE, groups, 1), "abc!Ac");
    /* more frames than calls */
    CHECK_STR(merged("abecdef", NATIVE_BASE, groups, 3), "ab!ABCf");
    CHECK_STR(merged("abc", NATIVE_BASE, groups, 2), "!AB!abc");
    /* native frames end early */
    CHECK_STR(merged("abcedef", NATIVE_LIMIT, groups, 4), "abcAdBf!CD");
    CHECK_STR(merged("abc", NATIVE_LIMIT, groups, 2), "abc!AB");
    /* early, and the innermost call may have no frame: nothing can be counted from there */
    CHECK_STR(merged("ebec", NATIVE_LIMIT, groups, 3), "!ABC");
    /* early, and already more calls than frames */
    CHECK_STR(merged("abeceded", NATIVE_LIMIT, groups, 2), "ab!AB");
}

int main(void)
{
    test_anchors();
    test_anchors_cut();
    test_anchors_lost();
    test_counts();
    return 0;
}
