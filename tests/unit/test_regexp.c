/* Regular expressions, held against what Python's re.search() says of the same. */
#include "fs/sql/regexp.h"
#include "tests/unit/check.h"

#include <errno.h>

static bool matches(const char *pattern, const char *text)
{
    struct regexp *regexp;
    const char *why;

    CHECK_INT(regexp_new(pattern, strlen(pattern), &regexp, &why), 0);
    bool found = regexp_search(regexp, text, strlen(text), NULL, NULL);
    CHECK(found == regexp_search(regexp, text, strlen(text), NULL, NULL));
    regexp_free(regexp);
    return found;
}

static void refused(const char *pattern, int error)
{
    struct regexp *regexp;
    const char *why = NULL;

    CHECK_INT(regexp_new(pattern, strlen(pattern), &regexp, &why), error);
    CHECK(why && *why);
}

static const struct {
    const char *pattern, *text;
    bool found;
} cases[] = {
    {"", "", true}, {"", "a", true}, {"a", "", false}, {"a", "bab", true}, {"abc", "xabcx", true},
    {"abc", "abxc", false}, {"^abc", "abc", true}, {"^abc", "xabc", false}, {"abc$", "xabc", true},
    {"abc$", "abcx", false}, {"^$", "", true}, {"^$", "a", false}, {"a.c", "abc", true},
    {"a.c", "ac", false}, {"a.c", "a\xc3\xbc" "c", true}, {"a*", "", true}, {"^a*$", "aaa", true},
    {"^a*$", "aab", false}, {"^a+$", "", false}, {"^a+b$", "aaab", true}, {"^ab?c$", "ac", true},
    {"^ab?c$", "abbc", false}, {"^(ab)+$", "ababab", true}, {"^(ab)+$", "aba", false},
    {"^(a|bc)$", "bc", true}, {"^(a|bc)$", "b", false}, {"^(|a)b$", "b", true},
    {"[abc]", "xbx", true}, {"[^abc]", "abc", false}, {"[^abc]", "abxc", true},
    {"[a-c]x", "bx", true}, {"[a-c]x", "dx", false}, {"[]a]", "]", true}, {"[a-]", "-", true},
    {"[\\d]", "5", true}, {"[^\\d]", "5", false}, {"\\d+", "ab12", true}, {"^\\D+$", "ab1", false},
    {"^\\w+$", "a_9\xc3\xbc", true}, {"^\\w+$", "a b", false}, {"\\s", "a b", true},
    {"^\\S+$", "a b", false}, {"\\bfoo\\b", "a foo b", true}, {"\\bfoo\\b", "afoo", false},
    {"\\Boo", "foo", true}, {"\\Bfoo", "foo", false}, {"a\\.b", "a.b", true}, {"a\\.b", "axb", false},
    {"\\n", "a\nb", true}, {"^a{3}$", "aaa", true}, {"^a{3}$", "aa", false}, {"^a{2,}$", "aaaa", true},
    {"^a{2,}$", "a", false}, {"^a{1,3}$", "aaaa", false}, {"^(ab){2}$", "abab", true},
    {"^a{0}b$", "b", true}, {"^a{0,1}$", "a", true}, {"(?i)HELLO", "say hello", true},
    {"(?i)[h]ELLO", "HeLLo", true}, {"HELLO", "hello", false}, {"^((a*)*)*b$", "aaaaaaaaaaaaaaaaac",
    false}, {"(a|aa)+$", "aaaaaaaaaaaaaaaaaaaaaaab", false}, {"^(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaab",
    false}, {"forward|backward", "nn.backward", true}, {"\xc3\xbc+", "gr\xc3\xbc\xc3\xbcn", true},
    {"^.$", "\xf0\x9f\x90\x8d", true}, {"a**", "aa", true},
};

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (matches(cases[i].pattern, cases[i].text) != cases[i].found) {
            fprintf(stderr, "%s on %s\n", cases[i].pattern, cases[i].text);
            return 1;
        }
    }
    refused("(", -EINVAL);
    refused("a)", -EINVAL);
    refused("[a", -EINVAL);
    refused("*a", -EINVAL);
    refused("a|*", -EINVAL);
    refused("[z-a]", -EINVAL);
    refused("a\\", -EINVAL);
    refused("a{x}", -EINVAL);
    refused("a{2,1}", -EINVAL);
    refused("a{5000}", -EINVAL);
    refused("((a{100}){100}){100}", -E2BIG);

    /* a pattern that takes others exponential time, and a long text */
    static char text[1 << 20];
    memset(text, 'a', sizeof text - 1);
    CHECK(!matches("(a*)*(a|b)*(a|aa)*c", text));
    return 0;
}
