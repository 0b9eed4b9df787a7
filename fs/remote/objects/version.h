/* The version of an interpreter. */
#pragma once

#include "fs/base/text.h"
#include "fs/remote/objects/runtime.h"

/* A PY_VERSION_HEX as python --version says it, such as 3.15.0rc1; only 3.10 where the patch
 * level is not known from outside. */
void version_add(uint32_t version, struct text *out);
/* CPython, and of what kind. */
const char *version_implementation(const struct runtime *runtime);

/* The exact version of an interpreter that only tells its minor from outside, as 3.8 to 3.10 do,
 * which have no Py_Version symbol. It is sys.hexversion, in the first interpreter's sys module. A
 * PY_VERSION_HEX, or 0: not readable (yet), or another minor than the runtime's. */
uint32_t version_read(const struct memory *m, const struct runtime *runtime);
