-- What a stranger with CREATE on `public` could do to whoever looks for names there: a function, an operator, a type and a
-- table for every name of the server's own. Whoever calls one of them is caught.
CREATE SEQUENCE public.caught;
CREATE FUNCTION public.catch(what text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- Not undone by a rollback.
  PERFORM nextval('public.caught');
  RAISE EXCEPTION 'caught: %', what;
END
$$;

DO $$
DECLARE
  it    record;
  types text;
  made  integer := 0;
BEGIN
  -- Those whose types nobody may name are left out, and come below by the types that they are called with.
  FOR it IN SELECT p.*, n.number FROM pg_proc p, LATERAL (SELECT row_number() OVER () AS number) n
             WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a', 'w') LOOP
    types := (SELECT string_agg(CASE WHEN it.provariadic <> 0 AND i = it.pronargs - 1 THEN 'VARIADIC ' ELSE '' END
                                || format_type(it.proargtypes[i], NULL), ', ' ORDER BY i)
                FROM generate_series(0, it.pronargs - 1) i);
    BEGIN
      EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS %L', it.proname, types,
                     CASE WHEN it.proretset THEN 'SETOF' END, format_type(it.prorettype, NULL),
                     format('BEGIN PERFORM public.catch(%L); END', it.proname || '(' || coalesce(types, '') || ')'));
      made := made + 1;
    EXCEPTION WHEN OTHERS THEN
      NULL;
    END;
  END LOOP;
  FOR it IN SELECT o.*, 'public.operator_' || o.oid AS function FROM pg_operator o
             WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprresult <> 0 LOOP
    types := concat_ws(', ', CASE WHEN it.oprleft <> 0 THEN format_type(it.oprleft, NULL) END,
                       format_type(it.oprright, NULL));
    BEGIN
      EXECUTE format('CREATE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql AS %L', it.function, types,
                     format_type(it.oprresult, NULL), format('BEGIN PERFORM public.catch(%L); END', it.oprname));
      EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = %s, %s RIGHTARG = %s)', it.oprname, it.function,
                     'LEFTARG = ' || nullif(format_type(nullif(it.oprleft, 0), NULL), '') || ', ',
                     format_type(it.oprright, NULL));
      made := made + 1;
    EXCEPTION WHEN OTHERS THEN
      NULL;
    END;
  END LOOP;
  ASSERT made > 3000, made || ' were made';
END
$$;

-- Those that take any number of values of any type: by the types of our own calls, which fit better.
DO $$
DECLARE
  it text;
BEGIN
  FOREACH it IN ARRAY ARRAY[
    'num_nulls(integer, jsonb, bytea, timestamptz)', 'num_nonnulls(integer, jsonb, bytea, timestamptz)',
    'json_build_array(text, text)', 'json_build_object(text, integer)', 'jsonb_build_object(text, integer)',
    'concat(text, text)', 'format(text, text)'] LOOP
    EXECUTE format('CREATE FUNCTION public.%s RETURNS text LANGUAGE plpgsql AS %L', it,
                   format('BEGIN PERFORM public.catch(%L); END', it));
  END LOOP;
END
$$;

DO $$
DECLARE
  it text;
BEGIN
  FOR it IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') LOOP
    EXECUTE format('CREATE VIEW public.%I AS SELECT public.catch(%L)', it, it);
  END LOOP;
  -- Last, because they stand in for the types of what comes after.
  FOREACH it IN ARRAY ARRAY['text', 'uuid', 'jsonb', 'json', 'bytea', 'name', 'oid', 'regclass', 'timestamptz', 'float8', 'int4',
                            'int8', 'bool', 'xid8'] LOOP
    EXECUTE format('CREATE DOMAIN public.%I AS pg_catalog.%I CHECK (public.catch(%L))', it, it, 'type ' || it);
  END LOOP;
END
$$;
