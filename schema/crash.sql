-- exceptions that nobody caught and fatal signals, as crash/ shows the last one
-- Of each: a row of kind 'exception' or 'signal', and of an exception then, innermost frame first, one of kind 'frame' for
-- each frame, followed by those of kind 'local' for what it binds; then the exceptions before it, as a traceback shows them:
-- of each a row of kind 'cause' or 'context', and one of kind 'earlier' for each of its frames; and the same, with kind
-- 'member', for those in an ExceptionGroup. Recorded once `on-crash` was written to ctl.
-- source: recorded
CREATE TABLE crash(
    ts REAL,          -- [s] since 1970
    crash INTEGER,    -- its number, from 1: tells what belongs together
    tid INTEGER,      -- the kernel's number of the thread
    kind TEXT,        -- 'exception', 'signal', 'frame', 'local', 'cause', 'context', 'member', 'earlier'
    depth INTEGER,    -- of the frame, 0 = innermost; NULL: it is not of a frame
    func TEXT,        -- of the frame, or where the exception was raised: name of its code, qualified from 3.11 on
    file TEXT,        -- the file of that
    lineno INTEGER,   -- the line in that
    name TEXT,        -- type of the exception, of the signal, or the name of a variable
    value TEXT        -- the message, or the variable's value
);
