-- What a server says of itself, of this session, and of what this user may see; for each new connection and for
-- `onlyonce doctor`, whose own connections it does not count.
SELECT json_build_object(
    'version', current_setting('server_version_num')::int, 'is_standby', pg_is_in_recovery(),
    'settings', (SELECT json_object_agg(name, setting) FROM pg_settings WHERE name IN
      ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'synchronous_standby_names', 'autovacuum',
       'track_counts', 'max_connections', 'zero_damaged_pages', 'ignore_checksum_failure')),
    'standbys', (SELECT json_build_object('all', count(*), 'shown', count(sync_state), 'synchronous',
        count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))) FROM pg_stat_replication),
    'age', (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()),
    'is_encrypted', (SELECT s.ssl FROM pg_stat_ssl s WHERE s.pid = a.pid),
    'ours', (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onlyonce'),
    'free', least(
      current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - (SELECT count(*) FROM pg_stat_activity
            WHERE datname IS NOT NULL AND application_name IS DISTINCT FROM 'onlyonce doctor'),
      (SELECT nullif(datconnlimit, -1) - (SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name IS DISTINCT FROM 'onlyonce doctor')
         FROM pg_database WHERE datname = current_database()),
      (SELECT nullif(rolconnlimit, -1) - (SELECT count(*) FROM pg_stat_activity
            WHERE usename = current_user AND application_name IS DISTINCT FROM 'onlyonce doctor')
         FROM pg_roles WHERE rolname = current_user)),
    'now_ms', (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    'pid', a.pid, 'since', extract(epoch FROM a.backend_start)::text)
  FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()
