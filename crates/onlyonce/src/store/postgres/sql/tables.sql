-- What is in the schema of this quoted name, for `onlyonce doctor`: the tables `meta` and `record`.
SELECT json_build_object(
    'may_use', coalesce(bool_or(has_schema_privilege(n.oid, 'USAGE')), false),
    'may_make', coalesce(bool_or(has_schema_privilege(n.oid, 'CREATE')),
                         has_database_privilege(current_database(), 'CREATE')),
    'tables', json_object_agg(c.relname, json_build_object(
      'persistence', c.relpersistence, 'options', c.reloptions::text,
      'is_unique', EXISTS (
        SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
         WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
           AND i.indnkeyatts = 1 AND a.attname = 'id'))) FILTER (WHERE c.relname IN ('meta', 'record')))
  FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r'
 WHERE '"' || replace(n.nspname, '"', '""') || '"' = {schema}
