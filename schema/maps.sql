-- what is mapped where: libraries, heaps, stacks
-- source: passive
CREATE TABLE maps(
    start INTEGER,  -- [address] where it begins
    size INTEGER,   -- [bytes] of the mapping
    perms TEXT,     -- 'r', 'w', 'x', each '-' where not allowed
    file_offset INTEGER, -- [bytes] in the file
    inode INTEGER,  -- of the file; 0: none
    path TEXT,      -- the file, or '[heap]' and the like; NULL: anonymous
    deleted INTEGER -- 1: the file has been removed or replaced since
);
