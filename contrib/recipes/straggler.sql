-- Steps take long: which rank's, and in which stage? Wants `record torch on` in ctl before; a rank that waits for another is slow in 'collective' only.
SELECT rank, pid, stage, count(*) AS times, avg(duration) AS seconds FROM torch_trace
WHERE duration IS NOT NULL AND stage IN ('iteration', 'loader', 'collective', 'step') OR module NOT LIKE '%.%' AND stage IN ('forward', 'backward')
GROUP BY rank, pid, stage ORDER BY stage, seconds DESC
