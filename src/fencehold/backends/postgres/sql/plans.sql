-- name: plans
-- only: postgres, because only there the plan of a statement depends on statistics, which after a bulk load are wrong.
-- With these the only plans left are nested loops over the indexes made for each statement.
SELECT set_config('enable_seqscan', 'off', :is_local), set_config('enable_bitmapscan', 'off', :is_local),
       set_config('enable_hashjoin', 'off', :is_local), set_config('enable_mergejoin', 'off', :is_local),
       set_config('enable_sort', 'off', :is_local), set_config('jit', 'off', :is_local),
       set_config('max_parallel_workers_per_gather', '0', :is_local), set_config('TimeZone', 'UTC', :is_local),
       set_config('plan_cache_mode', 'force_generic_plan', :is_local);
