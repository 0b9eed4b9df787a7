#include "fs/remote/moment/standing.h"

void standing_add(const struct standing *standing, struct text *out)
{
    static const char *const words[] = {
        [STANDS] = "",
        [SEEN_LINE] = "seen on this line ",
        [SEEN_FUNCTION] = "seen in this function ",
        [SEEN_AWAITING] = "seen here ",
    };

    /* cut, not rounded: never more than it is */
    text_printf(out, "%sfor %s%llu.%llu s", words[standing->kind],
                standing->kind == STANDS && standing->at_least ? "at least " : "",
                (unsigned long long)(standing->ns / 1000000000u),
                (unsigned long long)(standing->ns / 100000000u % 10));
}
