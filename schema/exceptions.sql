-- each exception that was raised, once, whether it was handled or not
-- source: recorded
CREATE TABLE exceptions(
    ts REAL,         -- [s] since 1970
    tid INTEGER,     -- the kernel's number of the thread
    type TEXT,       -- its class, with the module but for builtins
    message TEXT,    -- what it says, as far as that can be told without running the program's code
    file TEXT,       -- file of the code that raised it
    lineno INTEGER,  -- line in that file; NULL: the code has none
    func TEXT,       -- name of that code
    handled INTEGER  -- 1: some code caught it; 0: none did; NULL: not known yet
);
