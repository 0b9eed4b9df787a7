/* Saying no. */
#pragma once

#include "agent/wire/proto.h"

/* Puts down why, for people, cut where there is no more room. Returns -error. */
__attribute__((format(printf, 3, 4))) int refuse(int error, char words[PROTO_WORDS_MAX],
                                                 const char *format, ...);
