-- what the process used, each second while it is recorded
-- source: recorded
CREATE TABLE process_samples(
    ts REAL,                     -- [s] since 1970
    cpu_user REAL,               -- [s] on a processor since it was started, in its own code
    cpu_system REAL,             -- [s] on a processor since it was started, in the kernel
    rss INTEGER,                 -- [bytes] of memory that it has resident
    threads INTEGER,             -- how many it has
    minor_faults INTEGER,        -- page faults since it was started, without reading from a disk
    major_faults INTEGER,        -- page faults since it was started, with reading from a disk
    voluntary_switches INTEGER,  -- times since it was started that a thread of it waited
    involuntary_switches INTEGER -- times since it was started that a thread of it had to give way
);
