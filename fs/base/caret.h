/* A mark below a line, at the place where something is wrong. */
#pragma once

#include "fs/base/text.h"

/* The line, indented, on a line of its own, and below it a caret under `at`, which is in it or its
 * end. No newline at the end. */
void text_add_caret(struct text *out, const char *line, size_t size, const char *at);
