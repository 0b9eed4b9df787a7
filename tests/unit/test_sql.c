/* The engine over tables that only this test has: what statements give, what is pushed down to the
 * rows' sources, and how they are stopped. */
#include "agent/base/clock.h"
#include "fs/mount/command.h"
#include "fs/tree/query.h"
#include "tests/unit/check.h"
#include "tests/unit/tables/provider.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "colours.h"

static struct seen seen;

static struct provider provider(void)
{
    memset(&seen, 0, sizeof seen);
    return (struct provider){.tables = &colours_tables, .fill = provide, .arg = &seen};
}

/* Runs one text; *out gets the result or the words. */
static int run_on(const struct provider *from, const char *sql, enum format format,
                  struct text *out)
{
    struct engine *engine;
    size_t end;

    text_clear(out);
    CHECK_INT(engine_open(from, NULL, &engine), 0);
    int r = engine_prepare(engine, sql, strlen(sql), &end) == SQL_READY
                ? engine_run(engine, format, out)
                : -EINVAL;
    if (r == 0)
        r = text_finish(out);
    if (r < 0)
        engine_explain(engine, out);
    engine_close(engine);
    return r;
}

static void gives(const char *sql, enum format format, const char *want)
{
    struct provider from = provider();
    struct text out = TEXT_INIT;

    run_on(&from, sql, format, &out); /* of a failure the words are shown */
    CHECK_STR(out.data, want);
    text_deinit(&out);
}

static void fails(const char *sql, int error, const char *want)
{
    struct provider from = provider();
    struct text out = TEXT_INIT;

    CHECK_INT(run_on(&from, sql, FORMAT_CSV, &out), error);
    CHECK_STR(out.data, want);
    text_deinit(&out);
}

static void test_formats(void)
{
    gives("SELECT id, name, extra FROM colours", FORMAT_CSV,
          "id,name,extra\n0,red,\n1,\"gre\"\"en\",\n2,\"bl,ue\",-9223372036854775807\n3,\"\",\n"
          "4,\" grey\",\n5,bl\\xffack,\n6,\"line\nbreak\",\n7,gr\xc3\xbcn,\n");
    gives("SELECT NULL AS \"a,b\"", FORMAT_CSV, "\"a,b\"\n\"\"\n");
    gives("SELECT char(27, 10, 0) x, 1.0 y, 1e300 * 1e300 z", FORMAT_CSV,
          "x,y,z\n\"\\x1b\n\\x00\",1.0,Inf\n");
    gives("SELECT id, name, share, extra FROM colours WHERE id IN (1, 5, 6)", FORMAT_JSON,
          "[{\"id\": 1, \"name\": \"gre\\\"en\", \"share\": 1.5, \"extra\": null},\n"
          " {\"id\": 5, \"name\": \"bl\\\\xffack\", \"share\": 7.5, \"extra\": null},\n"
          " {\"id\": 6, \"name\": \"line\\nbreak\", \"share\": 9.0, \"extra\": null}]\n");
    gives("SELECT 1 WHERE 0", FORMAT_JSON, "[]\n");
    gives("SELECT 1 AS a UNION ALL SELECT NULL", FORMAT_JSONL, "{\"a\": 1}\n{\"a\": null}\n");
    gives("SELECT 'x\"' AS \"a-b\", 2 AS c_bytes UNION ALL SELECT 'no', NULL", FORMAT_METRICS,
          "# TYPE c_bytes gauge\n# UNIT c_bytes bytes\nc_bytes{a_b=\"x\\\"\"} 2\n");
    gives("SELECT 3 AS n_total", FORMAT_METRICS, "# TYPE n counter\nn_total 3\n");
    gives("SELECT 1 WHERE 0", FORMAT_CSV, "1\n");
    gives("SELECT 1e999 AS x", FORMAT_JSON, "[{\"x\": \"Inf\"}]\n");
    gives("SELECT name, id FROM colours WHERE id IN (0, 6, 7)", FORMAT_TABLE,
          "name         id\n-----------  --\nred           0\nline\\nbreak   6\n"
          "gr\xc3\xbcn          7\n");
}

static void test_statements(void)
{
    gives("SELECT python.colours.id FROM python.colours WHERE name = 'red'", FORMAT_CSV, "id\n0\n");
    gives("WITH c AS (SELECT * FROM colours) SELECT count(*) n FROM c", FORMAT_CSV, "n\n8\n");
    gives("SELECT id, sum(id) OVER (ORDER BY id) s FROM colours WHERE id < 3", FORMAT_CSV,
          "id,s\n0,0\n1,1\n2,3\n");
    gives("SELECT sqrt(16) a, json_extract('{\"k\":[1,2]}', '$.k[1]') b, '7' REGEXP '^\\d$' c",
          FORMAT_CSV, "a,b,c\n4.0,2,1\n");
    gives("SELECT count(*) n, count(name) m FROM colours JOIN numbers ON half = id", FORMAT_CSV,
          "n,m\n16,16\n");
    gives("SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.half AND a.half = b.half / 2 "
          "WHERE b.n = 1001",
          FORMAT_CSV, "n\n500\n");
    /* an equality is looked up; whatever SQLite takes for equal has to be found */
    gives("SELECT n FROM numbers WHERE n = 5.0", FORMAT_CSV, "n\n5\n");
    gives("SELECT n FROM numbers WHERE n = '5'", FORMAT_CSV, "n\n5\n");
    gives("SELECT a.id, b.id FROM colours a JOIN colours b ON a.name = b.name AND b.extra = "
          "-9223372036854775807",
          FORMAT_CSV, "id,id\n2,2\n");
    gives(
        "SELECT count(*) c FROM numbers a JOIN numbers b ON a.word = replace(b.word, 'd 1', 'd ')",
        FORMAT_CSV, "c\n1889\n");
    gives("SELECT count(*) c FROM numbers WHERE word = n OR word = NULL OR word = x'776f7264' OR "
          "word = 'word 3'",
          FORMAT_CSV, "c\n1\n");
    gives("SELECT n FROM numbers WHERE n = 5.5 OR n = 'x' OR n = NULL", FORMAT_CSV, "n\n");
    gives("SELECT a.id FROM colours a LEFT JOIN colours b ON b.extra = a.extra AND b.id = 2 "
          "WHERE b.id IS NULL ORDER BY 1 LIMIT 2",
          FORMAT_CSV, "id\n0\n1\n");
    gives("SELECT median(n) a, percentile(n, 90) b, median(NULL) c FROM numbers WHERE n < 11",
          FORMAT_CSV, "a,b,c\n5.0,9.0,\n");
    gives("SELECT median(n) a, percentile(1000 - n, 0) b, percentile(n % 7, 100) c, median(1) d, "
          "percentile(n * 7919 % 2003, 12.5) e FROM numbers",
          FORMAT_CSV, "a,b,c,d,e\n999.5,-999.0,6.0,1.0,251.875\n");
    gives("SELECT instr('gr\xc3\xbcn', 'n') a, replace('aXbXc', 'X', '--') b, instr(x'0102', "
          "x'02') c,"
          " replace('abc', '', 'x') d, instr(NULL, 'a') e, replace('aa', 'a', '') f",
          FORMAT_CSV, "a,b,c,d,e,f\n4,a--b--c,2,abc,,\"\"\n");
    gives("SELECT sum(value) s FROM python.json_each('[1, 2]')", FORMAT_CSV, "s\n3\n");
    gives("SELECT name FROM pragma_table_info('colours') WHERE cid = 1", FORMAT_CSV,
          "name\nname\n");
}

static void test_pushed_down(void)
{
    const struct bound *id = &seen.uses[0].bounds[COLOURS_ID], *name;
    const struct bound *share = &seen.uses[0].bounds[COLOURS_SHARE];

    gives("SELECT id FROM colours WHERE id = 3 AND share > 1", FORMAT_CSV, "id\n3\n");
    CHECK_INT(seen.uses[0].columns, 1 << COLOURS_ID | 1 << COLOURS_SHARE);
    CHECK(id->bounded && id->low == 3 && id->high == 3);
    CHECK(!seen.used[1] && seen.fills == 1);
    gives("SELECT count(*) c FROM colours WHERE id > 1 AND id <= 3", FORMAT_CSV, "c\n2\n");
    CHECK(id->bounded && id->low == 2 && id->high == 3);
    /* in all places where the table is used */
    gives("SELECT a.id FROM colours a, colours b WHERE a.id = 1 AND b.id = 4", FORMAT_CSV,
          "id\n1\n");
    CHECK(id->bounded && id->low == 1 && id->high == 4 && seen.fills == 1);
    gives("SELECT count(*) c FROM colours WHERE id = 1 OR share = 0", FORMAT_CSV, "c\n2\n");
    CHECK(!id->bounded);
    gives("SELECT count(*) c FROM (SELECT id FROM colours WHERE id = 1 UNION ALL "
          "SELECT id FROM colours)",
          FORMAT_CSV, "c\n9\n");
    CHECK(!id->bounded);
    gives("SELECT count(*) c FROM numbers LEFT JOIN colours ON n = id AND id < 2", FORMAT_CSV,
          "c\n2000\n");
    CHECK(id->bounded && id->high == 1);
    gives("SELECT count(*) c FROM colours WHERE id > 1.5 AND id < 3.5", FORMAT_CSV, "c\n2\n");
    CHECK(id->bounded && id->low == 1 && id->high == 3);
    gives("SELECT count(*) c FROM colours WHERE id IS NOT NULL", FORMAT_CSV, "c\n8\n");
    CHECK(id->bounded && id->low == INT64_MIN && id->high == INT64_MAX);
    gives("SELECT count(*) c FROM colours WHERE extra IS NULL OR id IS NOT NULL", FORMAT_CSV,
          "c\n8\n");
    CHECK(!id->bounded);
    gives("SELECT count(*) c FROM numbers LEFT JOIN colours ON n = id WHERE id IS NULL", FORMAT_CSV,
          "c\n1992\n");
    CHECK(!id->bounded);
    gives("SELECT count(*) c FROM colours WHERE id <> 1.5", FORMAT_CSV, "c\n8\n");
    CHECK(!id->bounded);
    gives("SELECT id FROM colours WHERE share BETWEEN 3 AND 4.5", FORMAT_CSV, "id\n2\n3\n");
    CHECK(share->bounded && share->least == 3 && share->most == 4.5);
    gives("SELECT count(*) c FROM colours WHERE share < 1.5 OR id = 1", FORMAT_CSV, "c\n2\n");
    CHECK(!share->bounded);
    name = &seen.uses[0].bounds[COLOURS_NAME];
    gives("SELECT id FROM colours WHERE name = 'red'", FORMAT_CSV, "id\n0\n");
    CHECK_STR(name->equal, "red");
    gives("SELECT id FROM colours WHERE name = 'RED' COLLATE NOCASE", FORMAT_CSV, "id\n0\n");
    CHECK_STR(name->equal, "");
    gives("SELECT id FROM colours WHERE name = 'red' || char(0)", FORMAT_CSV, "id\n");
    CHECK_STR(name->equal, "");
}

static void test_functions(void)
{
    static const char missing[] =
        "spelled: text has to be a text that stands there, as in '...'; it "
        "can't come from a column or an expression";
    const struct use *use = &seen.uses[2];
    char sql[CALL_TEXT_MAX + 100];

    gives("SELECT * FROM spelled(0, 'abc')", FORMAT_CSV, "position,letter\n0,a\n1,b\n2,c\n");
    CHECK(use->ncalls == 1 && use->calls[0].rows == CALL_ALL);
    gives("SELECT letter FROM spelled WHERE text = 'ab'", FORMAT_CSV, "letter\na\nb\na\nb\n");
    gives("SELECT letter FROM spelled(0, 'abcd') LIMIT 2 OFFSET 1", FORMAT_CSV, "letter\nb\nc\n");
    CHECK_INT(use->calls[0].rows, 3);
    gives("SELECT letter FROM spelled(0, 'abcd') WHERE position > 1 LIMIT 1", FORMAT_CSV,
          "letter\nc\n");
    CHECK(use->calls[0].rows == 1 && use->calls[0].ranges[SPELLED_POSITION].low == 2);
    gives("SELECT letter FROM spelled(0, 'abcd') WHERE letter > 'b' LIMIT 1", FORMAT_CSV,
          "letter\nc\n");
    CHECK(use->calls[0].rows == CALL_ALL);
    gives("SELECT letter FROM spelled(0, 'abcd') ORDER BY position LIMIT 1 OFFSET 2", FORMAT_CSV,
          "letter\nc\n");
    CHECK_INT(use->calls[0].rows, 3);
    gives("SELECT letter FROM spelled(0, 'abcd') ORDER BY letter DESC LIMIT 1", FORMAT_CSV,
          "letter\nd\n");
    CHECK(use->calls[0].rows == CALL_ALL);
    gives("SELECT letter FROM spelled WHERE text = 'ab' LIMIT 2 OFFSET 1", FORMAT_CSV,
          "letter\nb\na\n");
    gives("SELECT letter FROM spelled WHERE text = 'ab' ORDER BY position LIMIT 3", FORMAT_CSV,
          "letter\na\na\nb\n");
    /* all parts of a compound share OFFSET */
    gives("SELECT letter FROM spelled(0, 'ab') UNION ALL SELECT letter FROM spelled(0, 'cde') "
          "LIMIT 2 OFFSET 3",
          FORMAT_CSV, "letter\nd\ne\n");
    /* the same text in two places, by different rows of it */
    gives("SELECT a.letter || b.letter l FROM (SELECT * FROM spelled(0, 'abc') LIMIT 1) a, "
          "(SELECT * FROM spelled(0, 'abc') WHERE position > 0) b",
          FORMAT_CSV, "l\nab\nac\n");
    gives("SELECT letter FROM colours, spelled(id, 'ab') WHERE id < 1", FORMAT_CSV,
          "letter\na\nb\n");
    gives("SELECT letter FROM spelled WHERE turn = 1 AND (text = 'a' OR text = 'bc')", FORMAT_CSV,
          "letter\na\nb\nc\n");
    gives("SELECT count(*) c FROM spelled(0, '')", FORMAT_CSV, "c\n0\n");
    gives("SELECT count(*) c FROM spelled(NULL, 'a')", FORMAT_CSV, "c\n0\n");
    gives("SELECT count(*) c FROM spelled(0, 'a') WHERE text = 'b'", FORMAT_CSV, "c\n0\n");
    fails("SELECT * FROM spelled", -EINVAL, missing);
    fails("SELECT * FROM spelled(0, NULL)", -EINVAL, missing);
    fails("SELECT * FROM spelled(0, 7)", -EINVAL, missing);
    fails("SELECT * FROM spelled(0, 'a' || 'b')", -EINVAL, missing);
    fails("SELECT * FROM spelled WHERE text LIKE 'a'", -EINVAL, missing);
    fails("SELECT * FROM spelled WHERE text = 'a' COLLATE NOCASE", -EINVAL, missing);
    fails("SELECT * FROM colours, spelled(0, name)", -EINVAL, missing);
    snprintf(sql, sizeof sql, "SELECT count(*) c FROM spelled(0, '%.*d')", CALL_TEXT_MAX - 1, 0);
    gives(sql, FORMAT_CSV, "c\n1023\n");
    snprintf(sql, sizeof sql, "SELECT count(*) c FROM spelled(0, '%.*d')", CALL_TEXT_MAX, 0);
    fails(sql, -EINVAL, "spelled: text may have at most 1023 bytes, and no zero");
}

/* Whether SQLite sorts by itself. */
static void test_ordered(void)
{
    static const char *const here[] = {
        "SELECT word FROM numbers ORDER BY half DESC, n",
        "SELECT half, count(*) FROM numbers GROUP BY 1",
        "SELECT DISTINCT word, half FROM numbers",
        "SELECT max(n) FROM numbers",
        "SELECT half FROM numbers WHERE n = 5 ORDER BY half",
    };
    static const char *const there[] = {
        "SELECT word FROM numbers ORDER BY half + 1",
        "SELECT word FROM numbers ORDER BY word COLLATE NOCASE",
        "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.half ORDER BY b.n, a.n",
    };
    struct provider from = provider();
    struct text out = TEXT_INIT, sql = TEXT_INIT;

    for (size_t i = 0; i < sizeof here / sizeof *here + sizeof there / sizeof *there; i++) {
        bool ours = i < sizeof here / sizeof *here;
        text_clear(&sql);
        text_printf(&sql, "EXPLAIN %s", ours ? here[i] : there[i - sizeof here / sizeof *here]);
        CHECK_INT(run_on(&from, sql.data, FORMAT_CSV, &out), 0);
        CHECK_INT(!strstr(out.data, "SorterSort"), ours);
    }
    /* what a join asks for again and again is looked up, texts too */
    CHECK_INT(run_on(&from,
                     "EXPLAIN QUERY PLAN SELECT * FROM numbers a JOIN colours b ON a.word = b.name",
                     FORMAT_CSV, &out),
              0);
    CHECK(strstr(out.data, "VIRTUAL TABLE INDEX 0:B") ||
          strstr(out.data, "VIRTUAL TABLE INDEX 0:C"));
    CHECK_INT(run_on(&from,
                     "EXPLAIN QUERY PLAN SELECT * FROM numbers a JOIN colours b ON a.word = b.name "
                     "COLLATE NOCASE",
                     FORMAT_CSV, &out),
              0);
    CHECK(!strstr(out.data, "VIRTUAL TABLE INDEX 0:B") &&
          !strstr(out.data, "VIRTUAL TABLE INDEX 0:C"));
    text_deinit(&sql);
    text_deinit(&out);
    gives("SELECT id FROM colours ORDER BY name DESC LIMIT 4", FORMAT_CSV, "id\n0\n6\n7\n1\n");
    gives("SELECT id, extra FROM colours ORDER BY extra, share DESC LIMIT 2", FORMAT_CSV,
          "id,extra\n7,\n6,\n");
    gives("SELECT id FROM colours ORDER BY extra DESC LIMIT 1", FORMAT_CSV, "id\n2\n");
}

/* Held against what Python's re.search() says of the same. */
static const struct {
    const char *pattern, *text;
    bool found;
} cases[] = {
    {"", "", true},
    {"", "a", true},
    {"a", "", false},
    {"a", "bab", true},
    {"abc", "xabcx", true},
    {"abc", "abxc", false},
    {"^abc", "abc", true},
    {"^abc", "xabc", false},
    {"abc$", "xabc", true},
    {"abc$", "abcx", false},
    {"^$", "", true},
    {"^$", "a", false},
    {"a.c", "abc", true},
    {"a.c", "ac", false},
    {"a.c",
     "a\xc3\xbc"
     "c",
     true},
    {"a*", "", true},
    {"^a*$", "aaa", true},
    {"^a*$", "aab", false},
    {"^a+$", "", false},
    {"^a+b$", "aaab", true},
    {"^ab?c$", "ac", true},
    {"^ab?c$", "abbc", false},
    {"^(ab)+$", "ababab", true},
    {"^(ab)+$", "aba", false},
    {"^(a|bc)$", "bc", true},
    {"^(a|bc)$", "b", false},
    {"^(|a)b$", "b", true},
    {"[abc]", "xbx", true},
    {"[^abc]", "abc", false},
    {"[^abc]", "abxc", true},
    {"[a-c]x", "bx", true},
    {"[a-c]x", "dx", false},
    {"[]a]", "]", true},
    {"[a-]", "-", true},
    {"[\\d]", "5", true},
    {"[^\\d]", "5", false},
    {"\\d+", "ab12", true},
    {"^\\D+$", "ab1", false},
    {"^\\w+$", "a_9\xc3\xbc", true},
    {"^\\w+$", "a b", false},
    {"\\s", "a b", true},
    {"^\\S+$", "a b", false},
    {"\\bfoo\\b", "a foo b", true},
    {"\\bfoo\\b", "afoo", false},
    {"\\Boo", "foo", true},
    {"\\Bfoo", "foo", false},
    {"a\\.b", "a.b", true},
    {"a\\.b", "axb", false},
    {"\\n", "a\nb", true},
    {"^a{3}$", "aaa", true},
    {"^a{3}$", "aa", false},
    {"^a{2,}$", "aaaa", true},
    {"^a{2,}$", "a", false},
    {"^a{1,3}$", "aaaa", false},
    {"^(ab){2}$", "abab", true},
    {"^a{0}b$", "b", true},
    {"^a{0,1}$", "a", true},
    {"(?i)HELLO", "say hello", true},
    {"(?i)[h]ELLO", "HeLLo", true},
    {"HELLO", "hello", false},
    {"(a|aa)+$", "aaaaaaaaaaaaaaaaaaaaaaab", false},
    {"forward|backward", "nn.backward", true},
    {"\xc3\xbc+", "gr\xc3\xbc\xc3\xbcn", true},
    {"^.$", "\xf0\x9f\x90\x8d", true},
    {"(?i)\xc3\x9c", "\xc3\xbc", true},
    {"(?<=a)b(?!c)", "abd", true},
    {"(a|b)\\1", "abb", true},
    {"ack",
     "bl\xff"
     "ack",
     true},
    {"bl.ack",
     "bl\xff"
     "ack",
     false},
};

/* The words are PCRE2's, which other versions may put differently. */
static void refuses(const char *sql, const char *word)
{
    static const char begin[] = "regular expression: ";
    struct provider from = provider();
    struct text out = TEXT_INIT;

    CHECK_INT(run_on(&from, sql, FORMAT_CSV, &out), -EINVAL);
    CHECK(!strncmp(out.data, begin, strlen(begin)) && strstr(out.data, word));
    text_deinit(&out);
}

static void test_regexp(void)
{
    char sql[256], expected[16];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(sql, sizeof sql, "SELECT '%s' REGEXP '%s' AS x", cases[i].text, cases[i].pattern);
        snprintf(expected, sizeof expected, "x\n%d\n", cases[i].found);
        gives(sql, FORMAT_CSV, expected);
    }
    gives("SELECT NULL REGEXP 'a' a, 'a' REGEXP NULL b", FORMAT_CSV, "a,b\n,\n");
    gives("SELECT sum(word REGEXP '7$') a, sum(word REGEXP n) b FROM numbers", FORMAT_CSV,
          "a,b\n200,2000\n");
    refuses("SELECT 'a' REGEXP '('", "missing closing parenthesis, at byte 2 of the pattern");
    refuses("SELECT 'a' REGEXP 'b|*'", "at byte 3 of the pattern");
    refuses("SELECT 'a' REGEXP '((a{100}){100}){100}'", "too large");
    refuses("SELECT 'a' REGEXP hex(zeroblob(6000))", "pattern string is longer");
    refuses("SELECT 'a' REGEXP CAST(x'61ff' AS TEXT)", "UTF-8 error");
    refuses("SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaac' REGEXP '^(a+)+b|^(a+)+\\d'",
            "over the limit");
    refuses("SELECT hex(zeroblob(1000000)) REGEXP '^(0|1)*2'", "over the limit");
}

/* Patterns of 16 MiB statements and more: what no step of SQLite's machine may take for long. */
static const char *const long_ones[] = {
    "SELECT hex(zeroblob(7000000)) LIKE '%' || hex(zeroblob(400)) || '1'",
    "SELECT hex(zeroblob(7000000)) GLOB '*' || hex(zeroblob(400)) || '1'",
    "SELECT hex(zeroblob(7000000)) GLOB '*' || replace(hex(zeroblob(50)), '0', '[^b-z]') || '1'",
    "SELECT rtrim(hex(zeroblob(7000000)), replace(hex(zeroblob(500000)), '0', 'a') || '0')",
    "SELECT ltrim(hex(zeroblob(7000000)), replace(hex(zeroblob(500000)), '0', 'a') || '0')",
    "SELECT trim(hex(zeroblob(7000000)), replace(hex(zeroblob(500000)), '0', 'a') || '0')",
};

static void test_match(void)
{
    gives("SELECT 'Gr\xc3\xbcn' LIKE 'gr_N' a, 'ab' LIKE '%b%' b, 'ab' LIKE 'a' c, '' LIKE '%' d,"
          " 'abcabd' LIKE '%ab_' e, 'a%' LIKE 'a\\%' ESCAPE '\\' f, 'ab' LIKE 'a\\%' ESCAPE "
          "'\\' g, 'a%' LIKE 'a%%' ESCAPE '%' h, 17 LIKE '1_' i, NULL LIKE 'a' j, 'a' LIKE NULL "
          "k, 'aaab' LIKE '%a%ab' l, '\xc3\x84' LIKE '\xc3\xa4' m, 'a' NOT LIKE 'b' n",
          FORMAT_CSV, "a,b,c,d,e,f,g,h,i,j,k,l,m,n\n1,1,0,1,1,1,0,1,1,,,1,0,1\n");
    gives("SELECT 'abc' GLOB 'a*' a, 'Abc' GLOB 'a*' b, 'abc' GLOB '??c' c, 'a-c' GLOB 'a[a-]c' d,"
          " 'abc' GLOB 'a[^a]c' e, 'a]c' GLOB 'a[]]c' f, 'abc' GLOB '*[x-z]' g, 'a*' GLOB 'a[*]' "
          "h, 'abc' GLOB 'a[b' i, '\xc3\xbc' GLOB '[\xc3\xa4-\xc3\xbf]' j, NULL GLOB 'a' k,"
          " 'A' GLOB '[]--^]' l, 'a' GLOB '[^]-b]' m, '-' GLOB '[^]-b]' n",
          FORMAT_CSV, "a,b,c,d,e,f,g,h,i,j,k,l,m,n\n1,0,1,1,1,1,0,1,0,1,,1,1,0\n");
    gives(
        "SELECT trim('xxaxyx', 'yx') a, ltrim('xxax', 'x') b, rtrim('xaxx', 'x') c, trim(' a ') d,"
        " trim('\xc3\xbc"
        "a\xc3\xbc', '\xc3\xbc') e, trim('xx', 'x') f, trim(NULL, 'a') g, "
        "trim('a', NULL) h, trim('a', '') i, trim('\xc3\xbc', '\xc3\xa4') j",
        FORMAT_CSV, "a,b,c,d,e,f,g,h,i,j\na,ax,xa,a,a,\"\",,,a,\xc3\xbc\n");
    fails("SELECT 'a' LIKE hex(zeroblob(1000))", -EINVAL, "LIKE or GLOB pattern too complex");
    fails("SELECT 'a' LIKE 'a' ESCAPE 'ab'", -EINVAL,
          "ESCAPE expression must be a single character");
}

static void test_errors(void)
{
    fails("SELECT id FORM colours c", -EINVAL,
          "near \"colours\": syntax error\n  SELECT id FORM colours c\n                 ^");
    fails("SELECT id,\n\tnix FROM colours", -EINVAL,
          "no such column: nix\n  \\tnix FROM colours\n    ^");
    fails("SELECT '\xc3\xbc', nix FROM colours", -EINVAL,
          "no such column: nix\n  SELECT '\xc3\xbc', nix FROM colours\n              ^");
    fails("SELECT * FROM nix", -EINVAL,
          "no such table: nix; there are: colours, numbers, spelled, flights");
    fails("SELECT \"red\" FROM colours", -EINVAL,
          "no such column: red\n  SELECT \"red\" FROM colours\n         ^");
    fails("SELECT abs(-9223372036854775808)", -EINVAL, "integer overflow");
    fails("SELECT percentile(id, 101) FROM colours", -EINVAL,
          "percentile() takes a percentage from 0 to 100");
}

static void test_only_reads(void)
{
    static const char only[] = "only reading is allowed: SELECT, WITH, VALUES, EXPLAIN";
    static const char *const denied[] = {
        "ATTACH ':memory:' AS x",
        "CREATE TABLE t(a)",
        "CREATE TEMP TABLE t(a)",
        "VACUUM",
        "PRAGMA temp_store = FILE",
        "PRAGMA writable_schema = 1",
        "PRAGMA database_list",
        "SELECT load_extension('x')",
        "VACUUM INTO '/tmp/probefs-vacuum'",
        "BEGIN",
        "ANALYZE",
        "REINDEX",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "SELECT * FROM pragma_database_list",
    };
    struct provider from = provider();
    struct text out = TEXT_INIT;

    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        CHECK_INT(run_on(&from, denied[i], FORMAT_CSV, &out), -EINVAL);
        CHECK(!strncmp(out.data, only, strlen(only)));
    }
    CHECK(access("/tmp/probefs-vacuum", F_OK) < 0);
    fails("DELETE FROM colours", -EINVAL, "table colours may not be modified");
    fails("UPDATE colours SET id = 1", -EINVAL, "table colours may not be modified");
    fails("UPDATE sqlite_master SET sql = ''", -EINVAL, "table sqlite_master may not be modified");
    fails("DETACH python", -EINVAL, only);
    fails("SELECT json_patch('{}', '{}')", -EINVAL,
          "json_patch() isn't allowed: it could run for hours\n"
          "  SELECT json_patch('{}', '{}')\n         ^");
    fails("SELECT json, max(value) FROM json_each('[5]')", -EINVAL,
          "the column json of json_each isn't allowed: SQLite may show memory that it has freed");
    fails("SELECT * FROM json_tree('[5]', '$') t WHERE t.root IS NULL", -EINVAL,
          "the column root of json_tree isn't allowed: SQLite may show memory that it has freed");
    text_deinit(&out);
}

#define TWICE(x, y) #y "(x) AS (SELECT a.x FROM " #x " a, " #x " b), "
#define DOUBLING                                                                             \
 "WITH a(x) AS (SELECT 1), " TWICE(a, b) TWICE(b, c) TWICE(c, d) TWICE(d, e) TWICE(e, f)     \
     TWICE(f, g) TWICE(g, h) TWICE(h, i) TWICE(i, j) TWICE(j, k) TWICE(k, l) TWICE(l, m)     \
         TWICE(m, n) TWICE(n, o) TWICE(o, p) TWICE(p, q) TWICE(q, r) TWICE(r, s) TWICE(s, t) \
             TWICE(t, u) TWICE(u, v) TWICE(v, w) "z AS (SELECT 1) SELECT count(*) FROM w"

/* Is ended after 0.1 s: while it runs, or, on a slow machine too, while it is planned. */
static void takes_too_long(const char *sql)
{
    struct provider from = provider();
    struct text out = TEXT_INIT;

    from.deadline_ns = 100000000;
    int r = run_on(&from, sql, FORMAT_CSV, &out);
    CHECK(r == -ETIMEDOUT || r == -EINVAL);
    CHECK_STR(out.data, "over the limit: a statement may take 10 s");
    text_deinit(&out);
}

static void test_limits(void)
{
    struct provider from = provider();
    struct text out = TEXT_INIT;

    /* one call of a function can't be interrupted: it has to be short by itself */
    CHECK_INT(run_on(&from, "SELECT instr(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || '1')",
                     FORMAT_CSV, &out),
              0);
    takes_too_long("SELECT count(*) FROM numbers a, numbers b, numbers c");
    takes_too_long("SELECT hex(zeroblob(8000000)) REGEXP '(0*)*(0*)*1'");
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++)
        takes_too_long(long_ones[i]);
    takes_too_long(DOUBLING); /* it is never planned */

    from = provider();
    from.memory = 8 << 20;
    CHECK_INT(run_on(&from,
                     "WITH RECURSIVE c(x) AS (SELECT 1 UNION SELECT x + 1 FROM c) "
                     "SELECT count(*) FROM c",
                     FORMAT_CSV, &out),
              -EFBIG);
    CHECK(strstr(out.data, "256 MiB"));
    CHECK_INT(run_on(&from, "SELECT group_concat(hex(randomblob(1000000))) FROM numbers",
                     FORMAT_CSV, &out),
              -EFBIG);
    CHECK_INT(run_on(&from, "SELECT a.word FROM numbers a, numbers b ORDER BY a.word || 1",
                     FORMAT_CSV, &out),
              -EFBIG);

    for (enum format f = FORMAT_CSV; f <= FORMAT_TABLE; f++) /* the result is memory, too */
        CHECK_INT(run_on(&from, "SELECT hex(zeroblob(50000)), 1 FROM numbers", f, &out), -EFBIG);

    from = provider();
    CHECK_INT(run_on(&from, "SELECT 1 FROM numbers a, numbers b", FORMAT_CSV, &out), 0);
    CHECK(strstr(out.data, "\n[cut: the limit of 1,000,000 rows was reached]\n"));
    CHECK_INT(out.size,
              2 + 2 * 1000000 + strlen("[cut: the limit of 1,000,000 rows was reached]\n"));
    for (enum format f = FORMAT_CSV; f <= FORMAT_TABLE; f++) {
        CHECK_INT(run_on(&from, "SELECT hex(zeroblob(50000)), 1 FROM numbers", f, &out), 0);
        CHECK(strstr(out.data, "[cut: the limit of 31 MiB was reached]\n"));
    }
    text_deinit(&out);
}

static void *interrupt_soon(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    atomic_store(&((struct interrupt *)arg)->raised, true);
    return NULL;
}

static void test_interrupt(void)
{
    static const char sql[] = "SELECT count(*) FROM numbers a, numbers b, numbers c";
    struct interrupt interrupt = {.fd = -1};
    struct provider from = provider();
    struct text out = TEXT_INIT;
    struct engine *engine;
    pthread_t thread;
    size_t end;

    CHECK_INT(engine_open(&from, &interrupt, &engine), 0);
    CHECK_INT(engine_prepare(engine, sql, strlen(sql), &end), SQL_READY);
    CHECK_INT(pthread_create(&thread, NULL, interrupt_soon, &interrupt), 0);
    CHECK_INT(engine_run(engine, FORMAT_CSV, &out), -EINTR);
    pthread_join(thread, NULL);
    engine_explain(engine, &out);
    CHECK_STR(out.data, "interrupted");
    engine_close(engine);
    text_deinit(&out);
}

/* ---- texts in pieces ---- */

/* An open file: what is pending, and the reply. */
struct writing {
    struct provider from;
    struct text pending, reply;
    size_t passing;
    struct text why;
};

static int write_piece(struct writing *w, const char *piece, size_t size, bool last)
{
    struct text said = TEXT_INIT;
    struct outcome outcome = {0};
    size_t before = w->pending.size;

    text_add(&w->pending, piece, size);
    if (!w->pending.size)
        return 0;
    const struct input input = {
        .text = w->pending.data, .size = w->pending.size, .before = before, .last = last};
    w->why = TEXT_INIT;
    int r = query_feed(&w->from, NULL, &input, &said, &w->why, &outcome);
    if (outcome.retake)
        text_truncate(&w->reply, w->reply.size - w->passing);
    w->passing = outcome.passing + (outcome.retake || outcome.consumed ? 0 : w->passing);
    text_add(&w->reply, said.data, said.size);
    if (r < 0) {
        text_puts(&w->reply, "error: ");
        text_add(&w->reply, w->why.data, w->why.size);
        outcome.consumed = w->pending.size;
    }
    CHECK(outcome.consumed <= w->pending.size);
    memmove(w->pending.data, w->pending.data + outcome.consumed,
            w->pending.size - outcome.consumed + 1);
    w->pending.size -= outcome.consumed;
    text_deinit(&said);
    text_deinit(&w->why);
    return r;
}

static void writing_deinit(struct writing *w)
{
    text_deinit(&w->pending);
    text_deinit(&w->reply);
}

/* The same whether it is written as one block, line by line, or byte by byte. */
static void answers(const char *text, const char *want, int error)
{
    enum { BLOCK, LINES, BYTES, WAYS };

    /* an error is seen in its first bytes */
    for (int how = BLOCK; how < (error ? BYTES : WAYS); how++) {
        struct writing w = {.from = provider()};
        const char *p = text;
        int r = 0;
        while (*p && r == 0) {
            const char *newline = how == LINES ? strchr(p, '\n') : NULL;
            size_t size = newline ? (size_t)(newline + 1 - p) : how == BYTES ? 1 : strlen(p);
            r = write_piece(&w, p, size, false);
            p += size;
        }
        if (r == 0)
            r = write_piece(&w, "", 0, true);
        CHECK_STR(w.reply.data ? w.reply.data : "", want);
        CHECK_INT(r, error);
        writing_deinit(&w);
    }
}

static void test_pieces(void)
{
    answers("SELECT 1", "1\n1\n", 0);
    answers("SELECT 1;\n", "1\n1\n", 0);
    answers("SELECT id\nFROM colours\nWHERE id < 2\nORDER BY id DESC\n", "id\n1\n0\n", 0);
    answers("SELECT c.id, n.word\nFROM colours c\nJOIN numbers n\nON n.n = c.id\nWHERE id = 1;\n",
            "id,word\n1,word 1\n", 0);
    answers("SELECT *\nFROM colours\nWHERE id = 0\nAND share < 1",
            "id,name,share,extra\n0,red,0.0,\n", 0);
    answers("-- format: json\nSELECT id\nFROM colours\nWHERE id = 0", "[{\"id\": 0}]\n", 0);
    answers("-- a comment\n\n-- format: json\nSELECT 1 AS x", "x\n1\n", 0); /* not the first line */
    answers("SELECT 1;\nSELECT 2;\n", "1\n1\n2\n2\n", 0);
    answers("SELECT 1\nSELECT 2\n", "1\n1\n2\n2\n", 0);
    answers("WITH a AS (\nSELECT 1 x)\nSELECT x\nFROM a\n", "x\n1\n", 0);
    answers("SELECT 'a\nb' AS x", "x\n\"a\nb\"\n", 0);
    answers("SELECT 1 AS x -- done;\n, 2 AS y\n", "x,y\n1,2\n", 0);
    answers("SELECT 1 /* a\n comment */ AS x\n", "x\n1\n", 0);
    answers(
        "SELECT n FROM python.numbers WHERE word = 'word 7' AND half BETWEEN 1 AND 3 ORDER BY n",
        "n\n7\n", 0);
    answers(
        "WITH abc AS (SELECT 1 AS longer) SELECT longer FROM abc WHERE longer<=1 AND longer||'' "
        "REGEXP '1' GROUP BY longer HAVING count(*) >= 1",
        "longer\n1\n", 0);
    answers("SELECT name, value FROM pragma_table_info('numbers'), json_each('[1]') WHERE cid = 1",
            "name,value\nhalf,1\n", 0);
    answers("\n\n", "", 0);
    answers("-- nothing\n", "", 0);
    answers("SELECT id FORM colours c\n",
            "error: near \"colours\": syntax error\n"
            "  SELECT id FORM colours c\n                 ^",
            -EINVAL);
    answers("SELECT nix FROM colours\n",
            "error: no such column: nix\n"
            "  SELECT nix FROM colours\n         ^",
            -EINVAL);
    answers("SELECT count(", "error: incomplete input", -EINVAL);
    answers("SELECT nix;", "error: no such column: nix\n  SELECT nix;\n         ^", -EINVAL);
    answers("-- format: xml\nSELECT 1",
            "error: there is no format \"xml\": -- format: csv, json, jsonl, metrics or "
            "table",
            -EINVAL);
    answers("SELECT 'abc", "error: unrecognized token: \"'abc\"\n  SELECT 'abc\n         ^",
            -EINVAL);
}

/* What is read between two writes is not said again. */
static void test_two_in_a_row(void)
{
    struct writing w = {.from = provider()};

    CHECK_INT(write_piece(&w, "SELECT 1\n", 9, false), 0);
    CHECK_STR(w.reply.data, "1\n1\n");
    text_clear(&w.reply); /* read */
    CHECK_INT(write_piece(&w, "SELECT 2\n", 9, false), 0);
    CHECK_STR(w.reply.data, "2\n2\n");
    /* what a semicolon ends can't be mended by what follows */
    CHECK_INT(write_piece(&w, "SELECT nix;\n", 12, false), -EINVAL);
    CHECK_INT(write_piece(&w, "SELECT n FROM numbers a, numbers b;", 35, false), -EINVAL);
    CHECK_INT(write_piece(&w, "SELECT 'a' UNION SELECT 1, 2; SELECT 1", 38, false), -EINVAL);
    /* an error that what follows could have mended comes at the close */
    CHECK_INT(write_piece(&w, "SELECT id\n", 10, false), 0);
    CHECK_INT(write_piece(&w, "", 0, true), -EINVAL);
    writing_deinit(&w);
}

static void *query_loop(void *arg)
{
    struct text out = TEXT_INIT;
    struct seen mine = {0};
    const struct provider from = {.tables = &colours_tables, .fill = provide, .arg = &mine};

    for (int i = 0; i < 5; i++) {
        CHECK_INT(run_on(&from, "SELECT count(*) c FROM numbers a JOIN numbers b ON a.n = b.half",
                         FORMAT_CSV, &out),
                  0);
        CHECK_STR(out.data, "c\n2000\n");
    }
    text_deinit(&out);
    return NULL;
}

static void test_side_by_side(void)
{
    pthread_t threads[64];

    for (size_t i = 0; i < 64; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, query_loop, NULL), 0);
    for (size_t i = 0; i < 64; i++)
        pthread_join(threads[i], NULL);
}

/* Deep in itself: on the stack that commands have, whatever comes of it. */
static void *query_deeply(void *arg)
{
    static const char *const parts[][4] = {
        {"SELECT ", "(1+", "1", ")"},
        {"SELECT ", "abs(", "1", ")"},
        {"SELECT 1", "", "", " UNION SELECT 1"},
        {"SELECT ", "(SELECT ", "1", ")"},
        {"SELECT * FROM ", "(SELECT * FROM ", "colours", ")"},
        {"SELECT ", "NOT ", "1", ""},
        {"SELECT ", "CASE WHEN ", "1", " THEN 1 END"},
        {"SELECT json('", "[", "", "]"},
    };
    /* each is one level deeper than the one before it */
    static const char *const chains[][2] = {
        {"SELECT*FROM t%d", "SELECT*FROM t%d"},
        {"SELECT max(x)FROM t%d", "SELECT max(x)FROM t%d"},
        {"SELECT(SELECT x FROM t%d)", "SELECT x FROM t%d"},
        {"SELECT max(x)FROM t%d GROUP BY x LIMIT 1", "SELECT x FROM t%d"},
        {"SELECT x FROM t%d UNION SELECT 2", "SELECT x FROM t%d"},
    };
    struct provider from = provider();
    struct text sql = TEXT_INIT, out = TEXT_INIT;

    from.deadline_ns = 500000000;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int depth = 10; depth < 20000; depth *= 2) {
            text_clear(&sql);
            text_puts(&sql, parts[i][0]);
            for (int k = 0; k < depth; k++)
                text_puts(&sql, parts[i][1]);
            text_puts(&sql, parts[i][2]);
            for (int k = 0; k < depth; k++)
                text_puts(&sql, parts[i][3]);
            int r = run_on(&from, sql.data, FORMAT_CSV, &out);
            CHECK(r == 0 || out.size);
        }
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        for (size_t room = 1000; room < 2 * ENGINE_SQL_MAX; room *= 2) {
            int n = 0;
            /* one that is too long is parsed up to there first */
            from.deadline_ns = room > ENGINE_SQL_MAX ? 60000000000 : 3000000000;
            text_clear(&sql);
            text_puts(&sql, "WITH t0(x)AS(SELECT 1)");
            while (sql.size + 100 < room) {
                text_printf(&sql, ",t%d(x)AS(", n + 1);
                text_printf(&sql, chains[i][0], n++);
                text_putc(&sql, ')');
            }
            text_printf(&sql, chains[i][1], n);
            int r = run_on(&from, sql.data, FORMAT_CSV, &out);
            CHECK(r == 0 || out.size);
            if (room > ENGINE_SQL_MAX)
                CHECK_STR(out.data, "over the limit: a statement may have 64 KiB");
        }
    text_deinit(&sql);
    text_deinit(&out);
    return NULL;
}

static void test_deep(void)
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, COMMAND_STACK);
    CHECK_INT(pthread_create(&thread, &attr, query_deeply, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

int main(void)
{
    test_deep();
    test_formats();
    test_statements();
    test_pushed_down();
    test_functions();
    test_ordered();
    test_regexp();
    test_match();
    test_errors();
    test_only_reads();
    test_limits();
    test_interrupt();
    test_pieces();
    test_two_in_a_row();
    test_side_by_side();
    return 0;
}
