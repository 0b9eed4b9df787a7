-- what fills the heap: the objects of the interpreter's own allocator, by type
-- Those of at most 512 bytes: what is larger, and what libraries allocate, is malloc's and not in it. Counted from
-- outside, no code runs for it, and it takes a second for each GB or so; a count may be off by what was made and freed meanwhile.
-- source: passive
-- size: unknown
CREATE TABLE heap(
    type TEXT,     -- module.Type, as in __main__.Node; without a module: a builtin; NULL: no objects, but dicts' tables, lists' items and the like; or a note in brackets
    count INTEGER, -- objects
    bytes INTEGER  -- [bytes] that they take in the allocator, not what they refer to
);
