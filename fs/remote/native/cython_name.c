#include "fs/remote/native/cython_name.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum counter { COUNTER_NEVER, COUNTER_PERHAPS, COUNTER_ALWAYS };

/* Reads a scope, foo of "3foo_bar": its length, and where what follows it begins. 0: it is none. */
static size_t scope_length(const char *p, const char **name, const char **rest)
{
    char *end;

    if (!isdigit((unsigned char)*p))
        return 0;
    unsigned long n = strtoul(p, &end, 10);
    if (!n || strnlen(end, n + 1) <= n || isdigit((unsigned char)*end) || end[n] != '_')
        return 0;
    *name = end;
    *rest = end + n + 1;
    return n;
}

/* The function's own name; NULL: this can't be one. */
static const char *own_name(const char *p, enum counter counter)
{
    size_t digits = strspn(p, "0123456789");

    if (!p[digits] || (digits ? counter == COUNTER_NEVER : counter == COUNTER_ALWAYS))
        return NULL;
    return p + digits;
}

/* Whether what begins with a number may be both a scope with a function in it and a function. */
static bool is_ambiguous(const char *rest, enum counter counter)
{
    return counter == COUNTER_PERHAPS && !isdigit((unsigned char)*rest);
}

/* Whether a function's name stands at p, perhaps in further scopes. */
static bool can_follow(const char *p, enum counter counter)
{
    const char *name, *rest;

    while (scope_length(p, &name, &rest) && !own_name(p, counter))
        p = rest;
    return own_name(p, counter) != NULL;
}

bool cython_name(const char *symbol, char *out, size_t room)
{
    static const struct {
        const char *prefix;
        enum counter counter;
    } kinds[] = {{"__pyx_f_", COUNTER_NEVER},
                 {"__pyx_pw_", COUNTER_ALWAYS},
                 {"__pyx_pf_", COUNTER_PERHAPS}};
    const char *p = NULL, *name, *rest;
    enum counter counter = COUNTER_NEVER;
    size_t n, used = 0, scopes = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(symbol, kinds[i].prefix, strlen(kinds[i].prefix))) {
            p = symbol + strlen(kinds[i].prefix);
            counter = kinds[i].counter;
        }
    if (!p || strlen(p) + 1 > room || strstr(p, "__pyx_lambda_"))
        return false;
    for (; (n = scope_length(p, &name, &rest)) && can_follow(rest, counter); p = rest, scopes++) {
        if (scopes && is_ambiguous(rest, counter))
            return false;
        memcpy(out + used, name, n); /* what is written is shorter than what was read */
        used += n;
        out[used++] = '.';
    }
    name = own_name(p, counter);
    if (!scopes || !name)
        return false;
    memcpy(out + used, name, strlen(name) + 1);
    return true;
}
