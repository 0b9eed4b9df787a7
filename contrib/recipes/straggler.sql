-- Steps take long: which rank's, and in which stage? Wants `record torch on` in ctl before; a rank that waits for
-- another is slow in 'collective' only.
SELECT rank, pid, stage, count(*) AS steps, avg(seconds) AS seconds
FROM (SELECT rank, pid, step, stage,
             CASE WHEN stage IN ('forward', 'backward') THEN max(duration) ELSE sum(duration) END AS seconds
      FROM torch_trace WHERE duration IS NOT NULL AND stage NOT IN ('recording', 'shadow')
      GROUP BY rank, pid, step, stage)
GROUP BY rank, pid, stage ORDER BY stage, seconds DESC
