-- each run of the cyclic garbage collector
-- source: recorded
CREATE TABLE gc(
    ts REAL,              -- [s] since 1970, when it began
    tid INTEGER,          -- the kernel's number of the thread that it ran in
    generation INTEGER,   -- 0, 1 or 2: the oldest that it looked at
    duration REAL,        -- [s] for which Python stood still
    collected INTEGER,    -- objects that it freed
    uncollectable INTEGER -- objects that it could not free
);
