-- value(TID, DEPTH, 'PATH'): what that value of a frame holds, one level
-- One row for each item, entry and attribute, decoded from outside: no code runs for it. PATH is as in frames/<n>/value, and ''
-- stands for the frame: its names. It has to stand there as a text. TID and DEPTH may come from other tables, or be left out
-- (FROM value WHERE inside = 'PATH'): then it is asked of each frame in which the path leads somewhere. LIMIT ends the
-- reading where that is what the statement wants, and position >= N begins it there. What could not be read, or was left
-- out, is a row too: it has no name, and its value says what, in brackets.
-- source: passive
CREATE TABLE value(
    position INTEGER,           -- from 0, in the order of repr(): items, then attributes
    name TEXT,                  -- of an attribute; else [N], [KEY], or what a path can't be written with: a key's repr()
    type TEXT,                  -- its type, as in module.Type
    value TEXT,                 -- what repr() would say, as far as that can be known without running code
    length INTEGER,             -- what len() would say of a builtin container, str or bytes; NULL: it is something else
    path TEXT,                  -- the path that leads to it
    tid INTEGER HIDDEN,         -- the kernel's number of the thread
    depth INTEGER HIDDEN,       -- of the frame, as in locals
    inside TEXT HIDDEN ARGUMENT -- the path that was asked for
);
