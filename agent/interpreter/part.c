#include "agent/interpreter/part.h"

static size_t count(void)
{
    size_t n = 0;
    while (parts[n])
        n++;
    return n;
}

void parts_install(void)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->install)
            parts[i]->install();
}

void parts_uninstall(void)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->uninstall)
            parts[i]->uninstall();
}

int parts_lend(struct guest *guest)
{
    int r = 0;

    for (size_t i = 0; parts[i] && r == 0; i++)
        if (parts[i]->lend)
            r = parts[i]->lend(guest);
    return r;
}

void parts_interrupt(struct interpreter *interpreter)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->interrupt)
            parts[i]->interrupt(interpreter);
}

void parts_disarm(struct interpreter *interpreter)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->disarm)
            parts[i]->disarm(interpreter);
}

void parts_give_up(struct interpreter *interpreter)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->give_up)
            parts[i]->give_up(interpreter);
}

void parts_end(struct interpreter *interpreter)
{
    for (size_t i = 0; parts[i]; i++) {
        if (parts[i]->disarm)
            parts[i]->disarm(interpreter);
        if (parts[i]->give_up)
            parts[i]->give_up(interpreter);
    }
}

void parts_let_go(const struct interpreter *interpreter)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->let_go)
            parts[i]->let_go(interpreter);
}

bool parts_remain(void)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->remains && parts[i]->remains())
            return true;
    return false;
}

uint64_t parts_look(void)
{
    uint64_t first = 0;

    for (size_t i = 0; parts[i]; i++) {
        uint64_t ns = parts[i]->look ? parts[i]->look() : 0;
        if (ns && (!first || ns < first))
            first = ns;
    }
    return first;
}

void parts_begin_end(void)
{
    for (size_t i = count(); i-- > 0;)
        if (parts[i]->end)
            parts[i]->end();
}

bool parts_wait(void)
{
    bool left = true;

    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->wait)
            left = parts[i]->wait() && left;
    return left;
}

void parts_settle(void)
{
    for (size_t i = 0; parts[i]; i++)
        if (parts[i]->settle)
            parts[i]->settle();
}

void parts_daemon_gone(void)
{
    for (size_t i = count(); i-- > 0;)
        if (parts[i]->daemon_gone)
            parts[i]->daemon_gone();
}

void parts_forget(void)
{
    for (size_t i = count(); i-- > 0;)
        if (parts[i]->forget)
            parts[i]->forget();
}
