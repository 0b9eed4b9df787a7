-- what the Python frames bind: arguments, variables, cells
-- One row for each name that is bound. The values are decoded from outside, no code runs for it.
-- What could not be read, was left out or may be wrong is a row too: it has no name, and its value
-- says what, in brackets.
-- source: passive
CREATE TABLE locals(
    tid INTEGER,   -- the kernel's number of the thread
    depth INTEGER, -- of the frame, as in backtrace: 0 is the innermost Python frame
    name TEXT,     -- the variable
    type TEXT,     -- the type of its value, as in module.Type
    value TEXT     -- what repr() would say, as far as that can be known without running code
);
