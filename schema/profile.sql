-- the last samples of a profile
-- What `profile` in ctl has sampled: the last 65,536 of it as such. The files of profile/ have all of it, added up.
-- source: sampled
CREATE TABLE profile(
    ts REAL,        -- [s] since 1970; of a wait, when it ended or was last looked at
    tid INTEGER,    -- the kernel's number of the thread; 0: one of many short ones
    mode TEXT,      -- 'cpu', 'off' (the processor), 'preempted' (ready, and without one), 'faults', 'alloc' or 'heap'
    gil INTEGER,    -- 1: it held the GIL
    weight INTEGER, -- what it stands for: [ns] of time, pages of faults, [bytes] else
    stack INTEGER   -- number of the stack, in profile_stacks
);
