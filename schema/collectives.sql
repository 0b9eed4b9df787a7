-- which collective of torch.distributed a process is in, and which it was in
-- source: recorded
CREATE TABLE collectives(
    source TEXT,        -- 'stack': a thread is in it now, as its stack and its variables say; 'native': as its native frames say; 'recorded': a call; 'counter': one row for each group, how many PyTorch has counted there
    tid INTEGER,        -- the kernel's number of the thread that is in it, or called it
    group_name TEXT,    -- as PyTorch names it; NULL: unknown
    group_size INTEGER, -- processes of the group
    group_rank INTEGER, -- of this process in it
    seq INTEGER,        -- its number in the group, as PyTorch counts them on all ranks; of 'counter' that of the last one that has begun; NULL: unknown, or it is a send or recv
    start REAL,         -- [s] since 1970, when it was called; of 'counter' since when the number is that; NULL: unknown
    duration REAL,      -- [s] until it was waited for; NULL: it is open, or nobody waits for it
    op TEXT,            -- 'all_reduce'; of 'recorded' the process group's method, 'allreduce'
    shape TEXT,         -- of its first tensor, '64, 32'
    dtype TEXT,         -- of that
    bytes INTEGER,      -- of that
    peer INTEGER,       -- of send and recv the other's rank among all
    func TEXT,          -- of 'stack' and 'native' the program's function that has called it
    file TEXT,          -- where that is
    lineno INTEGER      -- its line
);
