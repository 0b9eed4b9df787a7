/* The dynamic loader finds them, as it finds all that the library calls: references are weak, since
 * no version has all. */
#include "agent/cpython/look_up.h"

#define REFERENCE(name, since, until) extern char name[] __attribute__((weak));
LOOKED_UP(REFERENCE)

#define ADDRESS(name, since, until) .name = name,
const struct looked_up looked_up = {LOOKED_UP(ADDRESS)};
