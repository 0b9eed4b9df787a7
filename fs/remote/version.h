/* The exact version of an interpreter that only tells its minor from outside: 3.9 and 3.10, which
 * have no Py_Version symbol. It is sys.hexversion, in the first interpreter's sys module. */
#pragma once

#include "fs/remote/runtime.h"

/* A PY_VERSION_HEX, or 0: not readable (yet), or another minor than the runtime's. */
uint32_t version_read(const struct memory *m, const struct runtime *runtime);
