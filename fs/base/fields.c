#include "fs/base/fields.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int64_t field_number(struct fields *fields, int64_t number, int64_t least, int64_t most)
{
    char *end;

    if (fields->out) {
        text_printf(fields->out, "%" PRId64 " ", number);
        return number;
    }
    if (fields->error < 0)
        return least;
    errno = 0;
    number = strtoll(fields->at, &end, 10);
    if (errno || end == fields->at || end >= fields->end || *end != ' ' || number < least ||
        number > most) {
        fields->error = -EPROTO;
        return least;
    }
    fields->at = end + 1;
    return number;
}

/* As its length and its bytes, each a number: whoever drops control characters finds none. */
void field_string(struct fields *fields, char *buf, size_t cap)
{
    size_t size = fields->out ? strnlen(buf, cap - 1) : 0;

    FIELD(fields, size, 0, (int64_t)cap - 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)buf[i];
        FIELD(fields, byte, 1, UCHAR_MAX);
        buf[i] = (char)byte;
    }
    buf[fields->error < 0 ? 0 : size] = 0;
}
