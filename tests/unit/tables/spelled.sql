-- spelled('TEXT'): a function that only a test has
-- One row for each letter, of each turn.
-- source: test
CREATE TABLE spelled(
    position INTEGER,         -- from 0
    letter TEXT,              -- the one there
    turn INTEGER HIDDEN,      -- 0 or 1
    text TEXT HIDDEN ARGUMENT -- what is spelled
);
