-- what the program says it does: `with probing.span("step", loss=0.1):`
-- source: recorded
CREATE TABLE spans(
    id INTEGER,     -- number of the span in this process, from 1
    parent INTEGER, -- id of the span around it, in its thread or asyncio task; NULL: none
    name TEXT,      -- as the program calls it
    tid INTEGER,    -- the kernel's number of the thread that began it
    task TEXT,      -- name of the asyncio task that began it; NULL: none
    start REAL,     -- [s] since 1970
    duration REAL,  -- [s] NULL: it has not ended, or not while this was recorded
    failed INTEGER, -- 1: an exception left it; NULL: it has not ended, or was dropped without
    attrs TEXT      -- its keyword arguments as a JSON object; NULL: none
);
