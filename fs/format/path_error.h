/* Why a path into a value leads nowhere (fs/remote/frames/children.h), in words. */
#pragma once

#include "fs/base/text.h"

/* Adds what children_visit() failed with, where the error is the path's: it was found up to `at`,
 * which isn't its end. */
void path_error_add(const char *path, const char *at, int error, struct text *why);
