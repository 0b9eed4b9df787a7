#include "fs/sql/regexp.h"

#include "agent/base/cleanup.h"
#include "fs/sql/stop.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define PATTERN_MAX 10000     /* bytes */
#define STEPS_MAX 10000000    /* from one place in the text; about a second */
#define DEPTH_MAX 1000000     /* steps that may have to be taken back */
#define MEMORY_MAX (16 << 10) /* KiB, to remember those */
#define STOP_EVERY 1024       /* items of the pattern that are tried */

/* Compiled, with what a search needs. */
struct regexp {
    pcre2_code *code;
    pcre2_match_context *limits;
    pcre2_match_data *found;
};

struct search {
    const struct stop *stop;
    size_t size;  /* of the text */
    size_t tried; /* since the statement was asked whether it is to end */
    bool stopped;
};

/* What PCRE2 takes counts as the statement's memory (heap.h). */
static void *take(size_t size, void *arg) { return sqlite3_malloc64(size); }
static void give_back(void *p, void *arg) { sqlite3_free(p); }

static void regexp_free(void *arg)
{
    struct regexp *regexp = arg;

    pcre2_match_data_free(regexp->found);
    pcre2_match_context_free(regexp->limits);
    pcre2_code_free(regexp->code);
    sqlite3_free(regexp);
}

static void cleanup_general(pcre2_general_context **p) { pcre2_general_context_free(*p); }
static void cleanup_compile(pcre2_compile_context **p) { pcre2_compile_context_free(*p); }

/* Called before each item of the pattern that is tried, which may have run through all of the
 * text. */
static int before_item(pcre2_callout_block *block, void *arg)
{
    struct search *search = arg;

    search->tried += 1 + search->size / STOP_EVERY;
    if (search->tried < STOP_EVERY)
        return 0;
    search->tried = 0;
    search->stopped = stop_reason(search->stop) < 0;
    return search->stopped ? PCRE2_ERROR_CALLOUT : 0;
}

/* Makes an error of SQLite of one of PCRE2. */
static void fail(sqlite3_context *context, int error, const char *where)
{
    PCRE2_UCHAR why[256];

    if (error == PCRE2_ERROR_NOMEMORY) {
        sqlite3_result_error_nomem(context);
        return;
    }
    if (error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_DEPTHLIMIT ||
        error == PCRE2_ERROR_HEAPLIMIT)
        sqlite3_snprintf(sizeof why, (char *)why,
                         "over the limit of steps or of memory for one text; repeats within "
                         "repeats are what takes many");
    else
        pcre2_get_error_message(error, why, sizeof why);
    char *words = sqlite3_mprintf("regular expression: %s%s", (const char *)why, where);
    sqlite3_result_error(context, words ? words : (const char *)why, -1);
    sqlite3_free(words);
}

static int compile(struct regexp *regexp, const char *pattern, size_t size, size_t *at)
{
    /* characters of any language, never half a one; AUTO_CALLOUT: before_item() */
    static const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF |
                                    PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
    int error = PCRE2_ERROR_NOMEMORY;

    _cleanup_(cleanup_general)
        pcre2_general_context *memory = pcre2_general_context_create(take, give_back, NULL);
    _cleanup_(cleanup_compile)
        pcre2_compile_context *limits = memory ? pcre2_compile_context_create(memory) : NULL;
    if (!limits)
        return error;
    pcre2_set_max_pattern_length(limits, PATTERN_MAX);
    regexp->code = pcre2_compile((PCRE2_SPTR)pattern, size, options, &error, at, limits);
    if (!regexp->code)
        return error == PCRE2_ERROR_HEAP_FAILED ? PCRE2_ERROR_NOMEMORY : error;
    regexp->limits = pcre2_match_context_create(memory);
    regexp->found = pcre2_match_data_create(1, memory);
    if (!regexp->limits || !regexp->found)
        return PCRE2_ERROR_NOMEMORY;
    pcre2_set_match_limit(regexp->limits, STEPS_MAX);
    pcre2_set_depth_limit(regexp->limits, DEPTH_MAX);
    pcre2_set_heap_limit(regexp->limits, MEMORY_MAX);
    return 0;
}

/* NULL: the error is in the context. */
static struct regexp *regexp_new(sqlite3_context *context, sqlite3_value *value)
{
    struct regexp *regexp = sqlite3_malloc64(sizeof *regexp);
    const char *pattern = (const char *)sqlite3_value_text(value);
    char where[64];
    size_t at = 0;

    if (!regexp || !pattern) {
        sqlite3_free(regexp);
        sqlite3_result_error_nomem(context);
        return NULL;
    }
    *regexp = (struct regexp){0};
    int error = compile(regexp, pattern, (size_t)sqlite3_value_bytes(value), &at);
    if (!error)
        return regexp;
    sqlite3_snprintf(sizeof where, where, ", at byte %llu of the pattern", (sqlite3_uint64)at + 1);
    fail(context, error, where);
    regexp_free(regexp);
    return NULL;
}

void regexp_function(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    struct regexp *regexp = sqlite3_get_auxdata(context, 0);
    const char *text = (const char *)sqlite3_value_text(argv[1]);
    struct search search = {.stop = sqlite3_user_data(context),
                            .size = (size_t)sqlite3_value_bytes(argv[1])};

    if (!text || sqlite3_value_type(argv[0]) == SQLITE_NULL)
        return; /* NULL */
    bool fresh = !regexp;
    if (fresh && !(regexp = regexp_new(context, argv[0])))
        return;
    pcre2_set_callout(regexp->limits, before_item, &search);
    int r = pcre2_match(regexp->code, (PCRE2_SPTR)text, search.size, 0, 0, regexp->found,
                        regexp->limits);
    if (search.stopped)
        sqlite3_result_error_code(context, SQLITE_INTERRUPT);
    else if (r < 0 && r != PCRE2_ERROR_NOMATCH)
        fail(context, r, "");
    else
        sqlite3_result_int(context, r != PCRE2_ERROR_NOMATCH);
    if (fresh)
        sqlite3_set_auxdata(context, 0, regexp, regexp_free);
}
