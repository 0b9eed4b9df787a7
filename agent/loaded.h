/* Other copies of this library in the process. */
#pragma once

#include <stdbool.h>

/* Whether another copy is loaded whose agent runs. Takes the loader's lock. */
bool loaded_elsewhere(void);
