
-- Recovery points: operations of several steps, each committed on its own, with calls to other services between the commits.
-- The library calls these functions and decides which write follows which state (steps/decide.rs); here it is only compared
-- and swapped. docs/recovery-points.md tells how they are used.
CREATE TABLE {schema}.steps (
  id          uuid PRIMARY KEY,
  -- Which program does the steps.
  name        text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
  scope       text NOT NULL,
  principal   text NOT NULL,
  key         text NOT NULL,
  fingerprint bytea NOT NULL,
  ttl         interval NOT NULL CHECK (ttl > interval '0'),
  -- What the program was asked, as JSON, so that it can go on without the client.
  request     text NOT NULL CHECK (octet_length(request) <= 1048576),
  begun_at    timestamptz NOT NULL,
  state       text NOT NULL CHECK (state IN ('running', 'waiting', 'stuck', 'unknown', 'completed')),
  since       timestamptz NOT NULL,
  -- Changes with every write but a renewal. It begins at random, so that it never comes back for an id.
  revision    bigint NOT NULL,
  -- The owner's, new for each attempt.
  token       uuid,
  -- From when on anybody may take it: running, when the lease ends; waiting or stuck, when it is tried again.
  due_at      timestamptz,
  -- Attempts since the last committed point.
  attempts    integer NOT NULL CHECK (attempts >= 0),
  -- What may have been done without its point: a call that was begun, or a step that has ended its transaction by itself. If it
  -- is not repeatable, it must not be done again.
  calling     text,
  repeatable  boolean NOT NULL DEFAULT false,
  -- How long after `since` it may still be on its way, by an owner that was taken for dead.
  quiet       interval NOT NULL DEFAULT interval '0',
  -- Why the last attempt ended.
  error       text,
  -- What an operator has done, and why.
  note        text,
  status      integer CHECK (status BETWEEN 100 AND 599),
  headers     jsonb CHECK (jsonb_typeof(headers) = 'object'),
  body        bytea,
  expires_at  timestamptz,
  CONSTRAINT running_has_a_token CHECK ((state = 'running') = (token IS NOT NULL)),
  CONSTRAINT open_is_due CHECK ((state IN ('running', 'waiting', 'stuck')) = (due_at IS NOT NULL)),
  CONSTRAINT calls_once_while_it_runs CHECK (calling IS NULL OR repeatable OR state IN ('running', 'unknown')),
  CONSTRAINT repeatable_is_a_call CHECK (calling IS NOT NULL OR NOT repeatable),
  CONSTRAINT completed_is_whole
    CHECK (num_nonnulls(status, headers, body, expires_at) = CASE state WHEN 'completed' THEN 4 ELSE 0 END)
);
ALTER TABLE {schema}.steps ALTER body SET STORAGE EXTERNAL;
CREATE INDEX steps_due ON {schema}.steps (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX steps_open ON {schema}.steps (since, id) WHERE state <> 'completed';
CREATE INDEX steps_expiry ON {schema}.steps (expires_at) WHERE expires_at IS NOT NULL;

-- The committed points of operations, and what their steps remembered, as JSON.
CREATE TABLE {schema}.point (
  operation    uuid NOT NULL REFERENCES {schema}.steps (id) ON DELETE CASCADE,
  number       integer NOT NULL CHECK (number >= 0),
  name         text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
  value        text NOT NULL CHECK (octet_length(value) <= 65536),
  committed_at timestamptz NOT NULL,
  PRIMARY KEY (operation, number),
  UNIQUE (operation, name)
);

-- A commit that is lost in a crash of the server would let a call be made again that must not be repeated.
CREATE FUNCTION {schema}.steps_commit_durably() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END
$$;

-- Adds an operation with this revision, which runs under a lease; in place of one that has expired, if its revision is given.
-- False if there is one.
CREATE FUNCTION {schema}.steps_insert(
  id uuid, name text, scope text, principal text, key text, fingerprint bytea, ttl_ms float8, request text,
  revision bigint, token uuid, lease_ms float8, expired bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment timestamptz := {now};
BEGIN
  PERFORM {schema}.steps_commit_durably();
  IF expired IS NOT NULL THEN
    DELETE FROM {schema}.steps s WHERE s.id = id AND s.revision = expired AND s.expires_at <= moment;
  END IF;
  INSERT INTO {schema}.steps (id, name, scope, principal, key, fingerprint, ttl, request, begun_at, state, since,
                              revision, token, due_at, attempts)
  VALUES (id, name, scope, principal, key, fingerprint, ttl_ms * interval '1 ms', request, moment, 'running', moment, revision,
          token, moment + lease_ms * interval '1 ms', 1)
  ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;

-- Compares and swaps: the next state, if the revision is still this one and, for an owner, the token too. Anybody else takes it
-- only if it is due still: a renewal does not change the revision.
CREATE FUNCTION {schema}.steps_swap(
  id uuid, revision bigint, owner uuid, state text, token uuid, due_ms float8, attempts integer, calling text,
  repeatable boolean, quiet_ms float8, error text)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment timestamptz := {now};
BEGIN
  PERFORM {schema}.steps_commit_durably();
  UPDATE {schema}.steps s
     SET state = state, since = CASE WHEN s.state = state THEN s.since ELSE moment END, revision = s.revision + 1,
         token = token, due_at = moment + due_ms * interval '1 ms', attempts = attempts, calling = calling,
         repeatable = repeatable, quiet = quiet_ms * interval '1 ms', error = coalesce(error, s.error)
   WHERE s.id = id AND s.revision = revision AND s.state <> 'completed'
     AND CASE WHEN owner IS NULL THEN s.due_at <= moment ELSE s.token = owner END;
  RETURN FOUND;
END
$$;

-- Renews the lease of an owner. False if it is the owner no more.
CREATE FUNCTION {schema}.steps_renew(id uuid, owner uuid, lease_ms float8) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  UPDATE {schema}.steps s SET due_at = {now} + lease_ms * interval '1 ms' WHERE s.id = id AND s.token = owner;
  RETURN FOUND;
END
$$;

-- The transaction in which a step works says so when it begins; after a COMMIT or ROLLBACK of the work itself it does not
-- say so any more.
CREATE FUNCTION {schema}.steps_demand_open(working text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF working IS DISTINCT FROM coalesce(current_setting('onlyonce.step', true), '') THEN
    RAISE EXCEPTION 'the work has ended the transaction of its step' USING ERRCODE = 'OO004';
  END IF;
END
$$;

-- Commits a point with what its step remembered, in the transaction of the step's effect. False if the owner has lost its
-- lease to another: roll back. `working` is what the transaction said when it began, '' if there is no other work in it.
CREATE FUNCTION {schema}.steps_point(
  id uuid, revision bigint, owner uuid, working text, number integer, name text, value text, lease_ms float8)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment timestamptz := {now};
BEGIN
  PERFORM {schema}.steps_demand_open(working);
  PERFORM {schema}.steps_commit_durably();
  UPDATE {schema}.steps s
     SET revision = s.revision + 1, due_at = moment + lease_ms * interval '1 ms', attempts = 0, calling = NULL,
         repeatable = false
   WHERE s.id = id AND s.revision = revision AND s.token = owner;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO {schema}.point (operation, number, name, value, committed_at) VALUES (id, number, name, value, moment);
  RETURN true;
END
$$;

-- Completes an operation with its answer, in the transaction of its last effect. False as above.
CREATE FUNCTION {schema}.steps_finish(
  id uuid, revision bigint, owner uuid, working text, status integer, headers jsonb, body bytea) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment timestamptz := {now};
BEGIN
  PERFORM {schema}.steps_demand_open(working);
  PERFORM {schema}.steps_commit_durably();
  UPDATE {schema}.steps s
     SET state = 'completed', since = moment, revision = s.revision + 1, token = NULL, due_at = NULL, calling = NULL,
         repeatable = false, status = status, headers = headers, body = body, expires_at = moment + s.ttl
   WHERE s.id = id AND s.revision = revision AND s.token = owner;
  RETURN FOUND;
END
$$;

-- Adds a message to the outbox in the transaction of a step, under the rules of the function outbox.
CREATE FUNCTION {schema}.steps_outbox(id uuid, working text, topic text, key text, payload bytea) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  message uuid;
BEGIN
  PERFORM {schema}.steps_demand_open(working);
  IF key IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(pg_catalog.hashtext(topic), pg_catalog.hashtext(key));
  END IF;
  INSERT INTO {schema}.outbox (operation, topic, key, payload, created_at) VALUES (id, topic, key, payload, {now})
  RETURNING outbox.id INTO message;
  RETURN message;
END
$$;

-- Makes an operation due now, with all of its attempts: one that waits, is stuck, or is unknown. What is in doubt is done again
-- only if `call_again` has the revision of the row that somebody has seen and says that it was not done: it is forgotten then.
-- Unless forced, not before it can be on its way no more.
CREATE FUNCTION {schema}.steps_retry(id uuid, call_again bigint, is_forced boolean, note text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment timestamptz := {now};
BEGIN
  PERFORM {schema}.steps_commit_durably();
  UPDATE {schema}.steps s
     SET state = 'waiting', since = CASE WHEN s.state = 'waiting' THEN s.since ELSE moment END, revision = s.revision + 1,
         due_at = moment, attempts = 0, calling = CASE WHEN call_again IS NULL THEN s.calling END,
         repeatable = s.repeatable AND call_again IS NULL, note = note
   WHERE s.id = id AND s.state IN ('waiting', 'stuck', 'unknown')
     AND CASE WHEN call_again IS NULL THEN s.calling IS NULL OR s.repeatable
              ELSE s.revision = call_again AND (is_forced OR s.calling IS NULL OR s.since + s.quiet <= moment) END;
  RETURN FOUND;
END
$$;

-- Gives an operation its answer by hand: one that waits, is stuck or unknown, or whose owner is gone.
CREATE FUNCTION {schema}.steps_settle(id uuid, status integer, headers jsonb, body bytea, note text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  moment timestamptz := {now};
BEGIN
  PERFORM {schema}.steps_commit_durably();
  UPDATE {schema}.steps s
     SET state = 'completed', since = moment, revision = s.revision + 1, token = NULL, due_at = NULL, calling = NULL,
         repeatable = false, status = status, headers = headers, body = body, expires_at = moment + s.ttl, note = note
   WHERE s.id = id AND (s.state IN ('waiting', 'stuck', 'unknown') OR s.state = 'running' AND s.due_at <= moment);
  RETURN FOUND;
END
$$;

-- Deletes operations that have expired, at most so many. Returns how many it deleted. The clock is read once, and rows are
-- found by an array: else the whole of the table is read.
CREATE FUNCTION {schema}.sweep_steps(rows_max integer DEFAULT 5000) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  WITH swept AS (
    DELETE FROM {schema}.steps s WHERE s.id = ANY (ARRAY(
      SELECT e.id FROM {schema}.steps e WHERE e.expires_at <= (SELECT {now})
       ORDER BY e.expires_at LIMIT rows_max FOR UPDATE SKIP LOCKED))
    RETURNING 1)
  SELECT count(*) FROM swept
$$;
