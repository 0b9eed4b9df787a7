-- It hangs: where does each main thread stand, and since when? The stack that fewest have is the one to look at.
SELECT b.func, b.file, b.lineno, t.state, t.wchan, count(*) AS processes, min(b.rank) AS first_rank,
       max(t.stands) AS stands
FROM backtrace b JOIN threads t ON t.pid = b.pid AND t.tid = b.tid
WHERE b.depth = 0 AND t.is_main = 1 GROUP BY 1, 2, 3, 4, 5 ORDER BY processes, stands DESC
