-- each time that a loop of asyncio was blocked for longer than `record loop on 100ms` says
-- That is the time from when its selector let it go on until it would wait there again: it ran one task or callback for
-- so long, or very many. The agent looks where its thread is once half of the limit is over, and again when all of it is.
-- source: recorded
CREATE TABLE loop(
    ts REAL,         -- [s] since 1970, when it began
    tid INTEGER,     -- the kernel's number of the thread that runs the loop
    duration REAL,   -- [s] NULL: it has not ended, or not while this was recorded
    task TEXT,       -- name of the task that ran; NULL: none, a callback of the loop, or it was over too soon to look
    coro TEXT,       -- the qualified name of its coroutine
    func TEXT,       -- where the thread was: the innermost function, qualified from 3.11 on
    file TEXT,       -- the source file of that
    lineno INTEGER,  -- the line that it was at
    stack TEXT       -- all of its stack: func (file:line), the outermost first, joined by semicolons
);
