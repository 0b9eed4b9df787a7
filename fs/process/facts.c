#include "fs/process/facts.h"

#include "fs/format/identity.h"
#include "fs/remote/moment/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void facts_merge_access(struct access_target *all, const struct access_target *now)
{
    bool same = !memcmp(all->uid, now->uid, sizeof all->uid) &&
                !memcmp(all->gid, now->gid, sizeof all->gid) && all->nns && now->nns &&
                !memcmp(&all->ns[0], &now->ns[0], sizeof all->ns[0]);

    all->dumpable = all->dumpable && now->dumpable && same;
    all->permitted |= now->permitted;
}

static void add_identity(const struct target *target, const struct text *program, int64_t rank,
                         const struct access_target *access, struct text *out)
{
    text_printf(out, "Pid: %d\n", target->pid);
    text_add(out, program->data, program->size);
    text_printf(out, "Uid: %u\nGid: %u\n", access->uid[1], access->gid[1]);
    identity_started(target->start_time, out);
    if (rank >= 0)
        text_printf(out, "Rank: %ld\n", (long)rank);
}

int facts_new(struct target *target, const struct text *program, int64_t rank, struct facts **out)
{
    struct facts *facts = calloc(1, sizeof *facts);
    if (!facts)
        return -ENOMEM;
    int r = access_read_target(target->pid, &facts->access);
    if (r == 0) {
        add_identity(target, program, rank, &facts->access, &facts->identity);
        /* else it may be a successor's */
        r = target_alive(target) ? facts->identity.error : -ESRCH;
    }
    if (r < 0) {
        facts_free(facts);
        return r;
    }
    *out = facts;
    return 0;
}

void facts_free(struct facts *facts)
{
    if (!facts)
        return;
    text_deinit(&facts->identity);
    free(facts);
}
