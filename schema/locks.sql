-- who waits for what, and who holds it
-- One row for each who waits, and each who holds what it waits for; deadlocks first. Where some may be missing or wrong,
-- the last row has only a kind, which says so in brackets.
-- source: passive
CREATE TABLE locks(
    tid INTEGER,          -- the thread that waits; of a task, the one that runs its loop; NULL: none, or another process's
    task INTEGER,         -- [address] the asyncio task that waits, its id(); NULL: a thread does
    waiter TEXT,          -- name of the task or thread; of a process that waits its command line
    kind TEXT,            -- class of what it waits for: 'Lock', 'RLock', 'Queue', 'asyncio.Lock', 'Task' and so on, 'GIL', 'mutex', 'pipe', 'socket', 'file lock', 'child', 'sleep'
    call TEXT,            -- the method or system call that waits: 'acquire', 'get', 'read' and so on; NULL: none
    address INTEGER,      -- [address] of what it waits for: its id(), or of the mutex; NULL: none
    name TEXT,            -- how the program finds that, 'inventory.lock'; NULL: not known
    func TEXT,            -- the function that waits
    file TEXT,            -- the source file of that
    lineno INTEGER,       -- the line that it is at
    timed INTEGER,        -- 1: the wait has a timeout, and ends by itself
    waited REAL,          -- [s] for how long it has waited; NULL: not known
    holder_tid INTEGER,   -- the thread that holds it, or runs the loop of the task that does; NULL: not known
    holder_task INTEGER,  -- [address] the task that holds it; NULL: none does
    holder_pid INTEGER,   -- the process that holds it, or is at its other end; NULL: a thread or task holds it, or nobody is known
    holder TEXT,          -- name of whom that is
    certain INTEGER,      -- 0: that one is only likely to hold it; NULL: no holder is known
    taken_func TEXT,      -- the function in which the holder took it; NULL: not known
    taken_file TEXT,      -- the source file of that
    taken_lineno INTEGER, -- the line
    held REAL,            -- [s] for how long it has held it at least; NULL: not known
    deadlock INTEGER      -- number of the deadlock that this is a part of; NULL: of none
);
