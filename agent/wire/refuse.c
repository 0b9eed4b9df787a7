#include "agent/wire/refuse.h"

#include <stdarg.h>
#include <stdio.h>

int refuse(int error, char words[PROTO_WORDS_MAX], const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(words, PROTO_WORDS_MAX, format, args);
    va_end(args);
    return -error;
}
