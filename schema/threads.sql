-- every thread, with its state and its times
-- source: passive
CREATE TABLE threads(
    tid INTEGER,               -- the kernel's number of the thread
    thread TEXT,               -- its name as threading knows it, else the kernel's
    is_main INTEGER,           -- 1: the process's first thread
    state TEXT,                -- 'running', 'idle', 'gil-wait', 'held' (by a breakpoint, see ctl), 'stopped', 'traced' or 'dead'; of a core file 'faulted': it got the fatal signal
    holds_gil INTEGER,         -- 1: it holds the GIL
    waits_gil INTEGER,         -- 1: it waits for the GIL
    handles_exception INTEGER, -- 1: an except or finally block of it runs, or it raises; NULL: it runs no Python
    collects_garbage INTEGER,  -- 1: it collects garbage; NULL: some thread of its interpreter does, it runs no Python, or 3.8
    depth INTEGER,             -- how many Python frames it has
    cpu_user REAL,             -- [s] on a processor, in its own code
    cpu_system REAL,           -- [s] on a processor, in the kernel
    wchan TEXT,                -- the system call that it waits in, of one that faulted the signal; NULL: it doesn't
    stands REAL,               -- [s] for so long, at least, it has not run, or not run Python if it waits for the GIL; NULL: it runs, or for less than a second
    seen_here REAL,            -- [s] it runs, and for so long each look, one a second, has seen it in this function; NULL: it was seen elsewhere, or isn't busy
    interpreter INTEGER,       -- number of the interpreter that it runs; NULL: it runs no Python
    ident INTEGER              -- threading.get_ident(); NULL: it runs no Python
);
