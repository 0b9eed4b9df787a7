-- What a daemon of probefs saw: see probefs(5), "History". Beside these there are the tables exceptions and crash.
-- Who may see a row in all/query: whose processes have this uid and gid; 0: root only.

-- every 5 s, of each process
CREATE TABLE IF NOT EXISTS samples(
    host TEXT,           -- the machine
    pid INTEGER,         -- the process
    rank INTEGER,        -- its rank; NULL: none
    job TEXT,            -- the distributed job that it belongs to; NULL: none is known
    uid INTEGER,         -- its user; 0 where only root may look at it
    gid INTEGER,         -- its group; 0 where only root may look at it
    ts REAL,             -- [s] since 1970
    state TEXT,          -- as in /proc/<pid>/stat: 'R' runs, 'S' sleeps, 'D' waits for a disk, 'T' stopped
    cpu_user REAL,       -- [s] on a processor since it was started, in its own code
    cpu_system REAL,     -- [s] on a processor since it was started, in the kernel
    rss INTEGER,         -- [bytes] of memory that it has resident
    threads INTEGER,     -- how many it has
    running INTEGER,     -- threads that ran or were ready to; NULL: it could not be read
    gil_held INTEGER,    -- 1: a thread held the GIL; NULL: it could not be read
    gil_waiting INTEGER  -- threads that waited for the GIL; NULL: it could not be read
);
CREATE INDEX IF NOT EXISTS samples_ts ON samples(ts);

-- what happened, as the files named events have it; and kind 'start': a process was seen for the first time
CREATE TABLE IF NOT EXISTS events(
    host TEXT,           -- the machine
    pid INTEGER,         -- the process
    rank INTEGER,        -- its rank; NULL: none
    job TEXT,            -- the distributed job that it belongs to; NULL: none is known
    uid INTEGER,         -- its user; 0 where only root may look at it
    gid INTEGER,         -- its group; 0 where only root may look at it
    ts REAL,             -- [s] since 1970; of kind 'start': when it was started
    kind TEXT,           -- 'start', 'hit', 'stop', 'continue', 'crash', 'blocked', 'event', 'exit', 'exec', 'lost', ...
    line TEXT            -- all of it, as one JSON object
);
CREATE INDEX IF NOT EXISTS events_ts ON events(ts);

-- what was sampled of processes while `profile` was on: once a minute, and when that or the process ends
CREATE TABLE IF NOT EXISTS profile(
    host TEXT,           -- the machine
    pid INTEGER,         -- the process
    rank INTEGER,        -- its rank; NULL: none
    job TEXT,            -- the distributed job that it belongs to; NULL: none is known
    uid INTEGER,         -- its user; 0 where only root may look at it
    gid INTEGER,         -- its group; 0 where only root may look at it
    ts REAL,             -- [s] since 1970: from when on
    seconds REAL,        -- [s] how long that was
    mode TEXT,           -- 'cpu' (weight: ns on a processor), 'gil' (the part of them with the GIL), 'off' (ns it waited),
                         -- 'preempted' (ns it was ready), 'faults' (pages), 'alloc' (bytes), 'heap' (bytes more that live)
    tid INTEGER,         -- the kernel's number of the thread; 0: of several
    thread TEXT,         -- its name; '[several]', or '[unnamed]': it ended before that was read
    stack TEXT,          -- `func (file:line)`, outermost first, joined by semicolons; '[other]': what is beyond the largest 200
    weight INTEGER,      -- ns, pages or bytes
    samples INTEGER      -- of how many samples
);
CREATE INDEX IF NOT EXISTS profile_ts ON profile(ts);

-- how far the daemon has come with each process that lives: nobody else's business
CREATE TABLE IF NOT EXISTS followed(
    host TEXT,           -- the machine
    pid INTEGER,         -- the process
    name TEXT,           -- 'events', or the table of a ring
    since REAL,          -- tells the process, or the ring, from another one of that name
    row INTEGER,         -- rows of the ring that are there
    dropped INTEGER,     -- rows that were lost
    upto REAL,           -- [s] since 1970: of the newest event that is there
    PRIMARY KEY(host, pid, name)
) WITHOUT ROWID;
