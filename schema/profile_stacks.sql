-- the stacks of those samples, a row a frame
-- source: sampled
CREATE TABLE profile_stacks(
    stack INTEGER,  -- number of the stack, as profile has it
    depth INTEGER,  -- 0 is the innermost frame
    func TEXT,      -- qualified name, symbol, or a reason as '[futex]'
    file TEXT,      -- source file; of native code its module; NULL: neither
    lineno INTEGER, -- the line that it is at; NULL: not known
    native INTEGER  -- 1: native code, 0: Python, NULL: neither
);
