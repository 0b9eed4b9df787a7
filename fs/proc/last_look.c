#include "fs/proc/last_look.h"

bool last_look_same(const struct last_look *look, const struct proc_stat *now)
{
    return look->start_time == now->start_time && look->start_code == now->start_code &&
           look->start_stack == now->start_stack;
}

bool last_look_holds(struct last_look *look, const struct proc_statm *now, uint64_t page)
{
    if (look->text != now->text)
        return false;
    if (look->found)
        return true;
    if (now->size * page < look->vsize)
        look->vsize = now->size * page;
    return now->size * page - look->vsize < LAST_LOOK_GROWTH;
}

bool last_look_grown(struct last_look *look, uint64_t vsize, uint64_t time, bool patient)
{
    if (look->found)
        return false;
    if (vsize < look->vsize)
        look->vsize = vsize;
    return vsize - look->vsize >= LAST_LOOK_GROWTH && (!patient || time >= look->until);
}

void last_look_update(struct last_look *look, const struct proc_stat *seen, bool found,
                      uint64_t time)
{
    bool again = last_look_same(look, seen) && look->wait;
    uint64_t wait = again ? look->wait * 2 : LAST_LOOK_WAIT_MIN;

    if (wait > LAST_LOOK_WAIT_MAX)
        wait = LAST_LOOK_WAIT_MAX;
    *look = (struct last_look){
        .start_time = seen->start_time,
        .start_code = seen->start_code,
        .start_stack = seen->start_stack,
        .vsize = seen->vsize,
        .wait = wait,
        .until = time + wait,
        .found = found,
    };
}
