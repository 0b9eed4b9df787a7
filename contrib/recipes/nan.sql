-- The loss is NaN: which parameter, or gradient of one, of which rank isn't finite? Needs PyTorch; reads all values
-- once. A step later each rank has it.
SELECT rank, pid, model, name, nan, inf, grad_nan, grad_inf FROM torch_parameters
WHERE nan > 0 OR inf > 0 OR grad_nan > 0 OR grad_inf > 0 ORDER BY rank, pid
