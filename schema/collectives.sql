-- which collective of torch.distributed a process is in, and which it was in
-- source: recorded
CREATE TABLE collectives(
    source TEXT,        -- 'stack': a thread is in it now, as its stack and its variables say; 'native': as its native frames say; 'recorded': a call; 'torch': one that PyTorch's own Flight Recorder has, called before recording began; 'counter': one row for each group, how many PyTorch has counted there
    tid INTEGER,        -- the kernel's number of the thread that is in it, or called it
    group_name TEXT,    -- as PyTorch names it; NULL: unknown
    group_size INTEGER, -- processes of the group
    group_rank INTEGER, -- of this process in it
    seq INTEGER,        -- its number in the group, as PyTorch counts them on all ranks; of 'counter' that of the last one that has begun; NULL: unknown, or it is a send or recv
    start REAL,         -- [s] since 1970, when it was called; of 'counter' since when the number is that; NULL: unknown
    duration REAL,      -- [s] until it was waited for, of 'torch' until it was seen to be complete; NULL: it is open, or nobody waits for it, or that isn't known
    op TEXT,            -- 'all_reduce'; of 'recorded' the process group's method, 'allreduce'; of 'torch' what PyTorch calls it
    shape TEXT,         -- of its first tensor, '64, 32'
    dtype TEXT,         -- of that
    bytes INTEGER,      -- of that
    peer INTEGER,       -- of send and recv the other's rank among all
    func TEXT,          -- of 'stack' and 'native' the program's function that has called it
    file TEXT,          -- where that is
    lineno INTEGER,     -- its line
    state TEXT(32)      -- of 'torch' as PyTorch has it: 'scheduled', 'started', 'completed'; 'retired': it doesn't look after it any more
);
