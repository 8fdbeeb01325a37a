-- What every session is told. Names are looked for where the server has its own, and nowhere else: the path of the user may lead
-- to functions that somebody else has put there. Commits wait for the disk, here and on synchronous standbys;
-- `remote_apply`, which waits for more, is kept. No statement waits long. Plans are made once, for a batch of any size, and
-- by index: the table is not what it was when they were made.
SET search_path = pg_catalog, pg_temp;
SELECT set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
SET lock_timeout = 2000;
SET statement_timeout = 4000;
SET idle_in_transaction_session_timeout = 10000;
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
SET default_transaction_deferrable = off;
SET client_min_messages = warning;
SET plan_cache_mode = force_generic_plan;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_memoize = off;
SET jit = off;
