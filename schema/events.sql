-- what happened at one moment: `probing.event("saved", path="a.pt")`
-- source: recorded
CREATE TABLE events(
    ts REAL,      -- [s] since 1970
    tid INTEGER,  -- the kernel's number of the thread
    task TEXT,    -- name of the asyncio task; NULL: none
    kind TEXT,    -- 'event': by probing.event()
    name TEXT,    -- as the program calls it
    span INTEGER, -- id of the span in which it happened; NULL: none
    attrs TEXT    -- its keyword arguments as a JSON object; NULL: none
);
