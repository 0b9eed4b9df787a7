-- the process itself, one row
-- source: passive
CREATE TABLE process(
    pid INTEGER,         -- the kernel's number of the process
    rank INTEGER,        -- in a distributed job, as its environment says; NULL: none
    job TEXT,            -- that job
    world INTEGER,       -- ranks of the job, on all hosts
    worker INTEGER,      -- 1: not the rank itself but what it has started, or an earlier start has left
    role TEXT,           -- 'dp=1,tp=0', of PROBING_DP_RANK and the like, or torchrun's role
    ppid INTEGER,        -- its parent's number
    python TEXT,         -- version of the interpreter
    implementation TEXT, -- 'CPython', perhaps with ', free-threaded'
    executable TEXT,     -- the file that it runs
    command TEXT,        -- the command line, its words separated by spaces
    cwd TEXT,            -- its working directory
    state TEXT,          -- as in /proc/<pid>/status: 'S (sleeping)'
    uid INTEGER,         -- effective user
    gid INTEGER,         -- effective group
    started REAL,        -- [s] since 1970
    uptime REAL,         -- [s] since it was started
    threads INTEGER,     -- how many, without Python too
    rss INTEGER,         -- [bytes] of memory that it has resident
    vsize INTEGER,       -- [bytes] of address space
    cpu_user REAL,       -- [s] on a processor, in its own code
    cpu_system REAL      -- [s] on a processor, in the kernel
);
