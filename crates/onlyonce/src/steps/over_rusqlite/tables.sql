-- The tables of recovery points in the caller's own SQLite file. docs/recovery-points.md tells how they are used.
-- Ids and tokens are UUIDs as text, times are milliseconds since 1970.

CREATE TABLE main.onlyonce_steps_schema (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL
) STRICT;

CREATE TABLE main.onlyonce_steps (
  id          TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
  -- Which program does the steps.
  name        TEXT NOT NULL,
  scope       TEXT NOT NULL,
  principal   TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  ttl_ms      INTEGER NOT NULL CHECK (ttl_ms > 0),
  -- What the program was asked, as JSON, so that it can go on without the client.
  request     TEXT NOT NULL,
  begun_at    INTEGER NOT NULL,
  state       TEXT NOT NULL CHECK (state IN ('running', 'waiting', 'stuck', 'unknown', 'completed')),
  since       INTEGER NOT NULL,
  -- Changes with every write but a renewal. It begins at random, so that it never comes back for an id.
  revision    INTEGER NOT NULL,
  -- The owner's, new for each attempt.
  token       TEXT,
  -- From when on anybody may take it: running, when the lease ends; waiting or stuck, when it is tried again.
  due_at      INTEGER,
  -- Attempts since the last committed point.
  attempts    INTEGER NOT NULL CHECK (attempts >= 0),
  -- What may have been done without its point: a call that was begun, or a step that has ended its transaction by itself. If it
  -- is not repeatable, it must not be done again.
  calling     TEXT,
  repeatable  INTEGER NOT NULL DEFAULT 0 CHECK (repeatable IN (0, 1)),
  -- How long after `since` it may still be on its way, by an owner that was taken for dead.
  quiet_ms    INTEGER NOT NULL DEFAULT 0,
  -- Why the last attempt ended.
  error       TEXT,
  -- What an operator has done, and why.
  note        TEXT,
  status      INTEGER CHECK (status BETWEEN 100 AND 599),
  headers     TEXT CHECK (json_type(headers) = 'object'),
  body        BLOB,
  expires_at  INTEGER,
  CONSTRAINT running_has_a_token CHECK ((state = 'running') = (token IS NOT NULL)),
  CONSTRAINT open_is_due CHECK ((state IN ('running', 'waiting', 'stuck')) = (due_at IS NOT NULL)),
  CONSTRAINT calls_once_while_it_runs CHECK (calling IS NULL OR repeatable OR state IN ('running', 'unknown')),
  CONSTRAINT repeatable_is_a_call CHECK (calling IS NOT NULL OR NOT repeatable),
  CONSTRAINT completed_is_whole
    CHECK ((status IS NOT NULL) + (headers IS NOT NULL) + (body IS NOT NULL) + (expires_at IS NOT NULL)
           = CASE state WHEN 'completed' THEN 4 ELSE 0 END)
) STRICT;
CREATE INDEX main.onlyonce_steps_due ON onlyonce_steps (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX main.onlyonce_steps_open ON onlyonce_steps (since, id) WHERE state <> 'completed';
CREATE INDEX main.onlyonce_steps_expiry ON onlyonce_steps (expires_at) WHERE expires_at IS NOT NULL;

-- The committed points of operations, and what their steps remembered, as JSON.
CREATE TABLE main.onlyonce_point (
  operation    TEXT NOT NULL REFERENCES onlyonce_steps (id),
  number       INTEGER NOT NULL CHECK (number >= 0),
  name         TEXT NOT NULL,
  value        TEXT NOT NULL,
  committed_at INTEGER NOT NULL,
  PRIMARY KEY (operation, number),
  UNIQUE (operation, name)
) STRICT, WITHOUT ROWID;

-- Not ON DELETE CASCADE, which does nothing on a connection with foreign_keys = OFF, the default of SQLite: points that stay
-- would be taken for those of the next operation with this id.
CREATE TRIGGER main.onlyonce_steps_deleted AFTER DELETE ON onlyonce_steps BEGIN
  DELETE FROM onlyonce_point WHERE operation = OLD.id;
END;

INSERT INTO main.onlyonce_steps_schema (id, version) VALUES (1, 2);
