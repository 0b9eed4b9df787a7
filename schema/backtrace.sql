-- every frame of every thread, Python and native
-- The rows of a thread come in the order of the file backtrace, innermost first. Frames that could
-- not be read, or were left out, are rows too: frame_type is 'Unreadable' or 'Cut' then, and func
-- says why, or how many.
-- source: passive
CREATE TABLE backtrace(
    tid INTEGER,        -- the kernel's number of the thread
    thread TEXT,        -- the thread's name
    number INTEGER,     -- #N in the file backtrace: counts all frames, 0 is the innermost
    depth INTEGER,      -- counts Python frames as frames/<depth> does, 0 is the innermost; NULL: native
    func TEXT,          -- the function's qualified name, or the native symbol; NULL: it has none
    file TEXT,          -- the source file of a Python frame
    lineno INTEGER,     -- the line that it is at
    end_lineno INTEGER, -- the line where what it executes ends
    col INTEGER,        -- [B] of that line, as UTF-8, before what it executes; NULL: not known (before 3.11, by the JIT)
    end_col INTEGER,    -- [B] of line end_lineno up to where that ends; NULL: not known
    frame_type TEXT,    -- 'Python', 'Native', 'Unreadable' or 'Cut'
    module TEXT,        -- the library or executable of a native frame
    address INTEGER     -- [address] of the frame's data (Python), of its instruction (native)
);
