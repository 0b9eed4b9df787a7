#include "fs/proc/last_look.h"

bool sighting_same(const struct sighting *s, const struct proc_stat *now)
{
    return s->start_time == now->start_time && s->start_code == now->start_code &&
           s->start_stack == now->start_stack;
}

bool sighting_holds(struct sighting *s, const struct proc_statm *now, uint64_t page)
{
    if (s->text != now->text)
        return false;
    if (s->found)
        return true;
    if (now->size * page < s->vsize)
        s->vsize = now->size * page;
    return now->size * page - s->vsize < SIGHTING_GROWTH;
}

bool sighting_grown(struct sighting *s, uint64_t vsize, uint64_t time, bool patient)
{
    if (s->found)
        return false;
    if (vsize < s->vsize)
        s->vsize = vsize;
    return vsize - s->vsize >= SIGHTING_GROWTH && (!patient || time >= s->until);
}

void sighting_update(struct sighting *s, const struct proc_stat *seen, bool found, uint64_t time)
{
    bool again = sighting_same(s, seen) && s->wait;
    uint64_t wait = again ? s->wait * 2 : SIGHTING_WAIT_MIN;

    if (wait > SIGHTING_WAIT_MAX)
        wait = SIGHTING_WAIT_MAX;
    *s = (struct sighting){
        .start_time = seen->start_time,
        .start_code = seen->start_code,
        .start_stack = seen->start_stack,
        .vsize = seen->vsize,
        .wait = wait,
        .until = time + wait,
        .found = found,
    };
}
