-- each exception that was raised, once, whether it was handled or not
-- One that is raised again, by another thread too, is the same row as long as it keeps its traceback; those that
-- it is chained to have their own. StopIteration, StopAsyncIteration and GeneratorExit are how loops and
-- generators end: of them, only what ends a thread is a row. handled is 0 once it has left its thread, asyncio task
-- or callback of a loop, and becomes 1 if who waits for that task catches it; a finally or with that deals with it
-- counts as code that caught it until it goes on; what C code got, as hasattr() does, stays NULL.
-- stack and locals have limits of their own, so that a loop which raises all the time isn't slowed down much: 100 and
-- 10 in each tenth of a second; locals are recorded if `record exceptions on locals` was written to ctl.
-- source: recorded
CREATE TABLE exceptions(
    ts REAL,         -- [s] since 1970
    tid INTEGER,     -- the kernel's number of the thread
    type TEXT,       -- its class, with the module but for builtins
    message TEXT,    -- what it says; NULL: only the program's own code could tell
    file TEXT,       -- file of the code that raised it first
    lineno INTEGER,  -- line in that file; NULL: the code has none
    func TEXT,       -- name of that code, qualified from 3.11 on
    handled INTEGER, -- 1: some code caught it; 0: none did; NULL: not known yet
    stack TEXT,      -- `func (file:line)` of the 10 innermost frames, outermost first, joined by semicolons; NULL: left out
    locals TEXT,     -- JSON object: what the raising frame bound and its value, as far as that can be told without running code; NULL: left out, or not asked for
    left_out INTEGER -- of a row with a stack: how many rows since the last one with all that this one has lack some of it
);
