#include "agent/crash/asked.h"

#include "agent/crash/crash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STOP_NS 600000000000ull /* without DURATION */

static const char *asked(void)
{
    const char *text = getenv("PROBING_ON_CRASH");
    return text && text[0] ? text : NULL;
}

/* IPDB_DEBUG, as contrib/probing.py reads it. */
static bool asks_for_pdb(void)
{
    static const char *const yes[] = {"1", "true", "yes", "on"};
    const char *text = getenv("IPDB_DEBUG");

    for (size_t i = 0; text && i < ARRAY_SIZE(yes); i++)
        if (strcasecmp(text, yes[i]) == 0)
            return true;
    return false;
}

bool asked_anything(void) { return asked() || asks_for_pdb(); }

/* 10m, 90s, 1.5h. False: it is none. */
static bool read_duration(const char *text, uint64_t *out)
{
    static const struct {
        char name;
        double seconds;
    } units[] = {{'\0', 1}, {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end;
    double number = strtod(text, &end);

    if (end == text || !(number > 0))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++)
        if (*end == units[i].name && (!*end || !end[1])) {
            double ns = number * units[i].seconds * 1e9;
            *out = ns < (double)PROTO_STOP_MAX_NS ? (uint64_t)ns : PROTO_STOP_MAX_NS;
            return true;
        }
    return false;
}

static bool read_order(const char *text, struct proto_on_crash *out)
{
    *out = (struct proto_on_crash){.mode = CRASH_STOP, .stop_ns = STOP_NS};
    if (!text || strcmp(text, "stop") == 0)
        return true;
    if (strcmp(text, "record") == 0 || strcmp(text, "off") == 0) {
        out->mode = text[0] == 'r' ? CRASH_RECORD : CRASH_OFF;
        return true;
    }
    return strncmp(text, "stop:", 5) == 0 && read_duration(text + 5, &out->stop_ns);
}

void asked_begin(struct interpreter *interpreter)
{
    char words[PROTO_WORDS_MAX] = "";
    const char *mode = getenv("IPDB_MODE");
    const bool by_pdb = asks_for_pdb() && !(mode && strcmp(mode, "web") == 0);
    struct proto_on_crash order;

    if (!read_order(asked(), &order)) {
        fprintf(stderr,
                "probing: PROBING_ON_CRASH=%.100s: write record, stop or stop:10m (s, m, h, d); "
                "nothing is held\n",
                asked());
        return;
    }
    if (asks_for_pdb())
        order.mode = CRASH_STOP;
    if (crash_begin(interpreter, &order, by_pdb, words) < 0)
        fprintf(stderr, "probing: PROBING_ON_CRASH: %s\n", words);
    PyErr_Clear();
}
