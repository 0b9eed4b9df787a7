/* Strings that live and die together: one allocation for many. */
#pragma once

#include <stddef.h>

struct strings;

/* -ENOMEM. */
int strings_new(struct strings **out);
void strings_free(struct strings *strings);
/* A copy of s; NULL when out of memory. */
const char *strings_add(struct strings *strings, const char *s);
