/* Strings that live and die together: one allocation for many. */
#pragma once

#include <stddef.h>

#define STRINGS_MAX (64u << 20) /* bytes of all */

struct strings;

/* -ENOMEM. */
int strings_new(struct strings **out);
void strings_free(struct strings *strings);
/* A copy of s; "..." once there are STRINGS_MAX bytes; NULL when out of memory. */
const char *strings_add(struct strings *strings, const char *s);
