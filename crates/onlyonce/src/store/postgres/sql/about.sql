-- What a server says of itself, and of this session.
SELECT pg_is_in_recovery() AS in_recovery, current_setting('server_version_num') AS version,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') <> 'on' AS tears_pages,
       current_setting('synchronous_standby_names') = '' AND EXISTS (SELECT FROM pg_stat_replication) AS may_lag,
       (SELECT s.ssl FROM pg_stat_ssl s WHERE s.pid = a.pid) AS is_encrypted,
       a.pid, extract(epoch FROM a.backend_start)::text AS since
  FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()
