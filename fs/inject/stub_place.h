/* The place in a target where the stub (bootstrap_MACHINE.S) can lie: the zero bytes between the
 * end of some code and the end of its last page, which are mapped, executable, and nobody's. */
#pragma once

#include "fs/remote/native/modules.h"

/* Finds it. *there: the stub lies there already, from an earlier time. -ENOSPC: nowhere; -ESRCH,
 * -EPERM. */
int stub_place_find(struct modules *modules, uint64_t *addr, bool *there);

/* Whether a place that was found before will still do. */
bool stub_place_check(const struct memory *memory, uint64_t addr, bool *there);
