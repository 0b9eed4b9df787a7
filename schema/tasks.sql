-- asyncio tasks that are not done (CPython 3.12 on)
-- Where tasks may be missing or wrong, since the process changes them too fast or has damaged them,
-- or has too many, the last row has no id, and its name says so.
-- source: passive
CREATE TABLE tasks(
    id INTEGER,         -- [address] of the task, its id(); NULL: the row is a note
    name TEXT,          -- the task's name
    coro TEXT,          -- the qualified name of its coroutine
    state TEXT,         -- 'running', 'ready', 'waiting', each perhaps with ', cancelling', or 'unreadable'
    stands REAL,        -- [s] for so long, at least, the thread of its loop has not run; NULL: it runs, or for less than a second
    seen_here REAL,     -- [s] for so long each look, one a second, has seen it await the same at the same place; NULL: for less than a second
    awaits TEXT,        -- what it waits for: the names of tasks, else the object
    awaited_by INTEGER, -- [address] id of a task that awaits this one (task_edges has all); NULL: none does
    func TEXT,          -- where it is: the innermost function of its coroutine; NULL: not known
    file TEXT,          -- the source file of that
    lineno INTEGER,     -- the line that it is at
    tid INTEGER,        -- the thread that runs its loop; NULL: none does
    loop INTEGER        -- [address] of the event loop, its id()
);
