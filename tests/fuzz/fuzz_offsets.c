/* _Py_DebugOffsets: what is accepted stays within structures of a possible size. The first byte
 * chooses the minor version, so that cookie and version need not be guessed. */
#include "agent/cpython/offsets.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define STRUCT_MAX (4 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t blob[DEBUG_OFFSETS_SIZE];
    const size_t managed = offsetof(struct offsets, managed_dict); /* before the object */
    struct offsets offsets;
    uint32_t version = 0;
    bool free_threaded = false;

    if (!size)
        return 0;
    memset(blob, 0, sizeof blob);
    memcpy(blob, data + 1, size - 1 < sizeof blob ? size - 1 : sizeof blob);
    if (data[0] & 7) {
        uint64_t hex = 0x030a0000u + ((uint64_t)(data[0] & 7) << 16); /* 3.11 to 3.17 */
        memcpy(blob, "xdebugpy", 8);
        memcpy(blob + 8, &hex, sizeof hex);
    }
    if (offsets_parse_debug(blob, sizeof blob, &offsets, &version, &free_threaded) < 0)
        return 0;
    if (version >> 16 < 0x030d || version >> 16 > 0x030f)
        abort();
#define X(field)                                                           \
 if ((offsets.field < -1 && offsetof(struct offsets, field) != managed) || \
     offsets.field > STRUCT_MAX)                                           \
  abort();
    OFFSETS_FIELDS(X)
#undef X
    struct debugger_offsets debugger;
    if (offsets_parse_debugger(blob, sizeof blob, &debugger) < 0)
        return 0;
#define X(field)                                        \
 if (debugger.field < 0 || debugger.field > STRUCT_MAX) \
  abort();
    DEBUGGER_OFFSETS_FIELDS(X)
#undef X
    if (debugger.support + debugger.script_path + debugger.script_path_size > offsets.tstate_size)
        abort();
    return 0;
}
