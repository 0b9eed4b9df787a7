-- the set of breakpoints and watchpoints, as <pid>/breakpoints shows it
-- source: recorded
CREATE TABLE breakpoints(
    id INTEGER,       -- by which it is removed, and found in hits
    breakpoint TEXT,  -- as it is written, without the id
    state TEXT,       -- 'armed'; 'pending': no such code is loaded yet; 'hw', 'dict' or 'line': how a value is watched; 'done': COUNT is reached, or the frame of a watch has returned; 'disabled': switched off
    note TEXT,        -- what else to know: another line that is used, several files; NULL: nothing
    places INTEGER,   -- code objects, or pieces of memory, in which it is armed
    hits INTEGER,     -- so far
    dropped INTEGER,  -- of them, those without a row in hits, because there were too many at once
    errors INTEGER,   -- how often its condition or a capture raised
    ts REAL,          -- [s] since 1970, when it was set
    lineno INTEGER,   -- of FILE:LINE: where it is armed, at that line or the next one that has code; NULL: nowhere, or of another kind
    changed REAL      -- [s] since 1970, when its state, its note or its words changed last
);
