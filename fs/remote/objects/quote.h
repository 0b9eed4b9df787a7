/* Strings as Python's repr() writes them. */
#pragma once

#include "fs/base/text.h"

#include <stdint.h>

/* A str: n code points of width bytes (1, 2, 4) each. Characters that Unicode calls not printable
 * are escaped as Python does; of those not assigned yet, which differ between versions of
 * Python, none are. */
void quote_add_str(struct text *out, const uint8_t *data, unsigned width, uint32_t n);
/* A bytes object: b'...' */
void quote_add_bytes(struct text *out, const uint8_t *data, uint32_t n);
