-- each hit of a breakpoint or watchpoint, and each stop of a thread
-- A row is written when the thread gets there; of a thread that is held, once it is. How a step or `pause` ended has no
-- id. A watched value is seen after it was written: then func, file and lineno are those of the code that wrote; NULL,
-- if that can't be proven. Where `stop watch` holds the thread has a row of its own, without hit.
-- source: recorded
CREATE TABLE hits(
    ts REAL,          -- [s] since 1970
    id INTEGER,       -- of the breakpoint; NULL: the end of a step, of `pause`, or an exception that nobody caught
    hit INTEGER,      -- of that breakpoint, from 1; NULL: a stop without a hit, or the condition of a `stop` raised, which is told once
    tid INTEGER,      -- the kernel's number of the thread
    func TEXT,        -- name of the code, qualified from 3.11 on
    file TEXT,        -- its file
    lineno INTEGER,   -- the line there; NULL: the code has none
    stack TEXT,       -- `func (file:line)` of each frame, outermost first, joined by semicolons; cut at the outer end
    captured TEXT,    -- JSON object: what stands in {} and its value as repr() shows it; without {}: all locals
    old_value TEXT,   -- of a watchpoint: before; NULL: not known, or it was unbound
    new_value TEXT,   -- of a watchpoint: after; NULL: as above
    address INTEGER,  -- of a watchpoint: behind the instruction that wrote; NULL: it was not seen by hardware
    error TEXT,       -- what the condition or a capture raised; and, of a watchpoint, what is known of an unproven writer: 'written between FILE:LINE and FILE:LINE'; NULL: nothing
    stopped INTEGER,  -- 1: the thread is, or was, held here
    resumed REAL,     -- [s] since 1970, when it went on; NULL: it is still held, or never was
    stop INTEGER,     -- number of the stop, from 1, as its events and threads/<tid>/ctl have it; NULL: the thread wasn't held
    reason TEXT(16),  -- of the stop: 'breakpoint', 'watch', 'raise', 'step', 'return', 'pause' or 'crash'; NULL: as above
    exception TEXT(200), -- of a stop by an exception: its type, with its module if that isn't builtins; else NULL
    message TEXT(800), -- of that exception: str() of it, cut at its end; NULL: not known
    returned TEXT(800) -- of a stop as a function returns, or after `finish`: repr() of what it returned, cut at its end; else NULL
);
