-- The transactional mode: functions that a program of any language calls in a transaction of its own, so that the key, the
-- business writes, the answer and the messages commit together or not at all. docs/transactions.md tells how to use them.
--
-- The session is the caller's, and so is its search_path, in which others may have put functions, operators and types of the
-- server's names. So every function says where it looks for names; or it is written as RETURN, which the server resolves when it
-- is made, and so under the path of the session that makes it. pg_temp is named last, because it is the first if it is not.

-- What an answer is. Domains, not CHECKs of the table: the server parses the CHECKs of a table again in every statement that
-- writes to it. As four CHECKs these rules took a quarter of the server's time for begin, complete and COMMIT together.
CREATE DOMAIN {schema}.answer_status AS integer CHECK (VALUE BETWEEN 100 AND 599);
CREATE DOMAIN {schema}.answer_headers AS jsonb CHECK (jsonb_typeof(VALUE) = 'object');

-- Begun and completed in one transaction, so that nobody else ever sees a row without an answer: complete writes all four
-- columns of it. While that transaction runs, an advisory lock stands for it.
CREATE TABLE {schema}.transactional (
  id          uuid PRIMARY KEY,
  scope       text NOT NULL,
  principal   text NOT NULL,
  key         text NOT NULL,
  fingerprint bytea NOT NULL,
  ttl         interval NOT NULL,
  begun_at    timestamptz NOT NULL,
  begun_by    xid8 NOT NULL DEFAULT pg_current_xact_id(),
  status      {schema}.answer_status,
  headers     {schema}.answer_headers,
  body        bytea,
  expires_at  timestamptz
);
ALTER TABLE {schema}.transactional ALTER body SET STORAGE EXTERNAL;
CREATE INDEX transactional_expiry ON {schema}.transactional (expires_at) WHERE expires_at IS NOT NULL;

-- The messages that operations cause. A relay leases each of them, ships it and deletes it: docs/outbox.md.
CREATE TABLE {schema}.outbox (
  id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  -- The order of the messages of a key: they are inserted under a lock that is kept until COMMIT.
  position     bigint GENERATED ALWAYS AS IDENTITY,
  operation    uuid NOT NULL,
  topic        text NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 255),
  -- Messages of one topic and key are shipped in order. NULL: in any order.
  key          text CHECK (octet_length(key) <= 1024),
  -- The messages of one topic and lane are shipped one after the other. A message without a key has a lane of its own.
  lane         text NOT NULL GENERATED ALWAYS AS (coalesce('=' || key, id::text)) STORED,
  payload      bytea NOT NULL CHECK (octet_length(payload) <= 1048576),
  created_at   timestamptz NOT NULL,
  -- From when on a relay may lease it: after the lease of another relay, or the pause before a retry. Parked: never.
  due_at       timestamptz NOT NULL DEFAULT '-infinity',
  -- Which lease it has, or had until due_at.
  lease        uuid,
  -- How often the sink has refused it.
  attempts     integer NOT NULL DEFAULT 0,
  parked_at    timestamptz,
  -- Why it was not shipped at the last attempt.
  error        text,
  CONSTRAINT parked_is_never_due CHECK ((parked_at IS NULL) = (due_at < 'infinity')),
  CONSTRAINT parked_has_no_lease CHECK (parked_at IS NULL OR lease IS NULL)
);
ALTER TABLE {schema}.outbox ALTER payload SET STORAGE EXTERNAL;
CREATE INDEX outbox_lane ON {schema}.outbox (topic, lane, position);
CREATE INDEX outbox_parked ON {schema}.outbox (position) WHERE parked_at IS NOT NULL;

-- The messages that consumers have taken, so that a second delivery has no effect.
CREATE TABLE {schema}.inbox (
  consumer   text NOT NULL,
  message_id text NOT NULL,
  seen_at    timestamptz NOT NULL,
  PRIMARY KEY (consumer, message_id)
);
CREATE INDEX inbox_age ON {schema}.inbox (seen_at);

-- The id of an operation: each part with its length in front of it, so that no two operations are hashed from one text.
-- Strict and stable functions only, so that the server puts it into the callers' expressions.
CREATE FUNCTION {schema}.operation_id(scope text, principal text, key text) RETURNS uuid
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN encode(substring(sha256(convert_to('onlyonce transaction 1 '
    || octet_length(convert_to(scope, 'UTF8'))::text || ':' || scope || ' '
    || octet_length(convert_to(principal, 'UTF8'))::text || ':' || principal || ' '
    || octet_length(convert_to(key, 'UTF8'))::text || ':' || key, 'UTF8')), 1, 16), 'hex')::uuid;

-- What an operation of this schema is locked by: a hash of its id. Two operations that share it only refuse each other for
-- a moment. Strict functions only, as above: parsed again at each call, it would be half of the time of begin.
CREATE FUNCTION {schema}.lock_of(id uuid) RETURNS bigint
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN uuid_hash_extended(id, $table${schema}.transactional$table$::regclass::oid::bigint);

-- Nobody knows what it did, so nobody is told that it was not done.
CREATE FUNCTION {schema}.refuse_unanswered(operation uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'operation % was committed without an answer', operation
    USING ERRCODE = 'OO006', HINT = 'Find out what it did, then delete its row or give it an answer by hand.';
END
$$;

-- Begins an operation in the caller's transaction. The outcome is one of:
--   mine         do the work, then call complete with the token, then COMMIT
--   replay       it was done before: status, headers and body are its answer
--   in_progress  another transaction is at it. It never waits for that one
--   reused       the key was used with another fingerprint
CREATE FUNCTION {schema}.begin(
  scope text, principal text, key text, fingerprint bytea, ttl interval DEFAULT '24 hours', version integer DEFAULT NULL,
  OUT outcome text, OUT token uuid, OUT status integer, OUT headers jsonb, OUT body bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  operation uuid := {schema}.operation_id(scope, principal, key);
  seen      {schema}.transactional;
  moment    timestamptz := {now};
BEGIN
  IF operation IS NULL OR fingerprint IS NULL OR '' IN (scope, principal, key)
     OR ttl IS NULL OR ttl <= interval '0' OR octet_length(scope || principal || key) > 4096 THEN
    RAISE EXCEPTION 'scope, principal, key and fingerprint are needed, of 4,096 bytes together at most, and a ttl above zero'
      USING ERRCODE = 'OO001';
  END IF;
  IF version <> 1 THEN
    RAISE EXCEPTION 'the functions have version 1, and the caller was made for version %', version
      USING ERRCODE = 'OO002', HINT = 'Use the version of onlyonce that made this schema.';
  END IF;
  -- Read first: a replay takes no lock, so that replays never meet each other.
  SELECT t.* INTO seen FROM {schema}.transactional t WHERE t.id = operation;
  IF seen.id IS NULL OR seen.expires_at <= moment THEN
    IF NOT pg_try_advisory_xact_lock({schema}.lock_of(operation)) THEN
      outcome := 'in_progress';
      RETURN;
    END IF;
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
      PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF seen.id IS NOT NULL THEN
      -- A sweep may be at it, and is not waited for.
      PERFORM FROM {schema}.transactional t WHERE t.id = operation FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        outcome := 'in_progress';
        RETURN;
      END IF;
      DELETE FROM {schema}.transactional t WHERE t.id = operation AND t.expires_at <= moment;
    END IF;
    INSERT INTO {schema}.transactional (id, scope, principal, key, fingerprint, ttl, begun_at)
    VALUES (operation, scope, principal, key, fingerprint, ttl, moment)
    ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN
      outcome := 'mine';
      token := operation;
      RETURN;
    END IF;
    -- It was completed between the first read and the lock.
    SELECT t.* INTO seen FROM {schema}.transactional t WHERE t.id = operation;
  END IF;
  IF seen.id IS NULL THEN
    -- A sweep has deleted it between the two statements.
    outcome := 'in_progress';
  ELSIF (seen.scope, seen.principal, seen.key) IS DISTINCT FROM (scope, principal, key) THEN
    RAISE EXCEPTION 'two operations have the id %', operation USING ERRCODE = 'OO007';
  ELSIF seen.status IS NULL AND seen.begun_by = pg_current_xact_id() THEN
    RAISE EXCEPTION 'this transaction has begun the operation before' USING ERRCODE = 'OO003';
  ELSIF num_nulls(seen.status, seen.headers, seen.body, seen.expires_at) > 0 THEN
    -- Of four columns an answer, or none of it: a person may have written to the row.
    PERFORM {schema}.refuse_unanswered(operation);
  ELSIF seen.fingerprint <> fingerprint THEN
    outcome := 'reused';
  ELSE
    outcome := 'replay';
    status := seen.status;
    headers := seen.headers;
    body := seen.body;
  END IF;
END
$$;

-- Keeps the answer of an operation that this transaction has begun. COMMIT makes it last.
CREATE FUNCTION {schema}.complete(token uuid, status integer, headers jsonb DEFAULT '{}', body bytea DEFAULT '') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  IF status IS NULL THEN
    RAISE EXCEPTION 'an answer has a status' USING ERRCODE = 'OO001';
  END IF;
  UPDATE {schema}.transactional t
     SET status = status, headers = coalesce(headers, '{}'), body = coalesce(body, ''), expires_at = {now} + t.ttl
   WHERE t.id = token AND t.status IS NULL AND t.begun_by = pg_current_xact_id();
  IF NOT FOUND THEN
    RAISE EXCEPTION 'this transaction has no open operation %', token
      USING ERRCODE = 'OO004', HINT = 'Call begin and complete in one transaction, once each.';
  END IF;
END
$$;

-- A transaction that commits without an answer would leave writes that a retry does again. Its COMMIT fails instead.
CREATE FUNCTION {schema}.demand_completed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM {schema}.transactional t WHERE t.id = NEW.id AND t.status IS NULL) THEN
    RAISE EXCEPTION 'operation % was begun and not completed', NEW.id
      USING ERRCODE = 'OO005', HINT = 'Call complete before COMMIT, or roll back.';
  END IF;
  RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER transactional_is_completed AFTER INSERT ON {schema}.transactional
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.demand_completed();
ALTER TABLE {schema}.transactional ENABLE ALWAYS TRIGGER transactional_is_completed;

-- What became of an operation whose COMMIT was not answered: its answer, or no row if it was not done. It waits for the
-- transaction that began it, which may still be on its way, for two seconds: call it again after a lock timeout. An answer that
-- has expired is that of an earlier attempt, whose row is back because the one in question did not delete it: no row. So it is to
-- be asked before the ttl is over.
CREATE FUNCTION {schema}.resolve(token uuid, fingerprint bytea, OUT status integer, OUT headers jsonb, OUT body bytea)
RETURNS SETOF record
LANGUAGE plpgsql SET lock_timeout = '2s' SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  seen {schema}.transactional;
BEGIN
  -- An older snapshot does not see a commit that was made while this waits, and a standby does not know the lock.
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'resolve needs READ COMMITTED' USING ERRCODE = 'OO008';
  ELSIF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'resolve needs the primary' USING ERRCODE = 'OO009';
  END IF;
  PERFORM pg_advisory_xact_lock_shared({schema}.lock_of(token));
  -- With another fingerprint it is the answer to another request: this one was not done.
  SELECT t.* INTO seen FROM {schema}.transactional t WHERE t.id = token AND t.fingerprint = resolve.fingerprint;
  IF seen.id IS NULL OR seen.expires_at <= {now} THEN
    RETURN;
  ELSIF num_nulls(seen.status, seen.headers, seen.body, seen.expires_at) > 0 THEN
    PERFORM {schema}.refuse_unanswered(token);
  END IF;
  status := seen.status;
  headers := seen.headers;
  body := seen.body;
  RETURN NEXT;
END
$$;

-- Adds a message to an operation that this transaction has begun, and returns its id. Transactions that add messages of one
-- topic and key wait for each other, so that their messages have the order of their commits.
CREATE FUNCTION {schema}.outbox(token uuid, topic text, key text, payload bytea) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  message uuid;
BEGIN
  IF NOT EXISTS (SELECT FROM {schema}.transactional t
                  WHERE t.id = token AND t.status IS NULL AND t.begun_by = pg_current_xact_id()) THEN
    RAISE EXCEPTION 'this transaction has no open operation %', token
      USING ERRCODE = 'OO004', HINT = 'Add messages between begin and complete.';
  END IF;
  IF key IS NOT NULL THEN
    -- Two numbers: the locks of operations have one, so that they never meet.
    PERFORM pg_advisory_xact_lock(pg_catalog.hashtext(topic), pg_catalog.hashtext(key));
  END IF;
  INSERT INTO {schema}.outbox (operation, topic, key, payload, created_at) VALUES (token, topic, key, payload, {now})
  RETURNING id INTO message;
  RETURN message;
END
$$;

-- Whether a consumer sees a message for the first time. The caller's transaction has the effect: both commit, or neither, and
-- durably: the message is acknowledged after COMMIT. A second delivery waits until the transaction of the first has ended.
CREATE FUNCTION {schema}.seen(consumer text, message_id text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
  -- Messages without an id would all be taken for one.
  IF coalesce(consumer, '') = '' OR coalesce(message_id, '') = '' THEN
    RAISE EXCEPTION 'a consumer and the id of a message are needed' USING ERRCODE = 'OO001';
  END IF;
  INSERT INTO {schema}.inbox (consumer, message_id, seen_at) VALUES (consumer, message_id, {now})
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM set_config('onlyonce.seen', 'on', true);
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  RETURN true;
END
$$;

-- A mark that is committed without its effect takes the message for done. Functions are not told whether they are called in a
-- transaction block; but in autocommit mode the transaction ends with the statement that called seen, or with none, and not with
-- a statement that ends a block. (CALL and DO: a procedure may end its own.) Rows that a person inserts are the person's.
CREATE FUNCTION {schema}.demand_block() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('onlyonce.seen', true) = 'on'
     AND coalesce(current_query(), '') !~* '\m(commit|end|prepare|constraints|call|do)\M' THEN
    RAISE EXCEPTION 'seen was called outside of a transaction block'
      USING ERRCODE = 'OO010', HINT = 'Call it between BEGIN and COMMIT, with the effect of the message.';
  END IF;
  RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER inbox_in_a_block AFTER INSERT ON {schema}.inbox
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.demand_block();

-- Deletes operations that have expired, and messages of the inbox that were seen so long ago; at most so many of each.
-- Returns how many it deleted. The clock is read once, and rows are found by arrays: else the whole of the tables is read.
CREATE FUNCTION {schema}.sweep_transactions(rows_max integer DEFAULT 5000, inbox_keep interval DEFAULT '30 days') RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  WITH operations AS (
    DELETE FROM {schema}.transactional t WHERE t.id = ANY (ARRAY(
      SELECT e.id FROM {schema}.transactional e WHERE e.expires_at <= (SELECT {now})
       ORDER BY e.expires_at LIMIT rows_max FOR UPDATE SKIP LOCKED))
    RETURNING 1),
  messages AS (
    -- The row is locked, so that it stays where it is.
    DELETE FROM {schema}.inbox i WHERE i.ctid = ANY (ARRAY(
      SELECT o.ctid FROM {schema}.inbox o WHERE o.seen_at <= (SELECT {now} - inbox_keep)
       ORDER BY o.seen_at LIMIT rows_max FOR UPDATE SKIP LOCKED))
    RETURNING 1)
  SELECT (SELECT count(*) FROM operations) + (SELECT count(*) FROM messages)
$$;
