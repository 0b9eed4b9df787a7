/* A library to be put into targets: what it does, a careless injection would show in its host. It
 * allocates, fills vector registers, sets errno, uses thread-local storage, and counts. */
#include "agent/wire/proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 20

/* Read from outside. */
__attribute__((visibility("default"))) struct {
    uint64_t started, called, origin, handle;
} intruder_record;

static _Thread_local int tls = 7;
static _Thread_local char tls_block[64];
static void *kept;

static void fill_registers(void)
{
    asm volatile("pcmpeqd %%xmm0, %%xmm0\n pcmpeqd %%xmm1, %%xmm1\n pcmpeqd %%xmm7, %%xmm7\n"
                 "pcmpeqd %%xmm15, %%xmm15\n" ::
                     : "xmm0", "xmm1", "xmm7", "xmm15");
    if (__builtin_cpu_supports("avx"))
        asm volatile("vcmptrueps %%ymm0, %%ymm0, %%ymm0\n vcmptrueps %%ymm15, %%ymm15, %%ymm15\n" ::
                         : "xmm0", "xmm15");
}

__attribute__((visibility("default"))) int probe_agent_start(const struct agent_boot *boot)
{
    for (size_t i = 1; i < BLOCKS; i++) {
        void *block = malloc(i * 337);
        if (!block)
            return -ENOMEM;
        memset(block, (int)i, i * 337);
        if (i == BLOCKS / 2 && !kept)
            kept = block;
        else
            free(block);
    }
    fill_registers();
    intruder_record.started++;
    intruder_record.origin = boot->origin;
    intruder_record.handle = boot->handle;
    errno = 77;
    return ++tls + tls_block[0] == 8 ? 0 : -EPROTO;
}

int intruder_call(const struct agent_boot *boot);
__attribute__((visibility("default"))) int intruder_call(const struct agent_boot *boot)
{
    fill_registers();
    errno = 78;
    return boot->handle ? -EPROTO : (int)++intruder_record.called;
}

__attribute__((destructor)) static void end(void) { free(kept); }
