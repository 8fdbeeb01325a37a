-- The tables of the transactional mode in the caller's own SQLite file. docs/transactions.md tells how they are used.
-- Ids are UUIDs as text, times are milliseconds since 1970.

CREATE TABLE main.onlyonce_schema (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL
) STRICT;

-- Always empty, so that a reference to it is always broken.
CREATE TABLE main.onlyonce_nothing (id INTEGER PRIMARY KEY CHECK (FALSE)) STRICT;

CREATE TABLE main.onlyonce_transactional (
  id          TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 36),
  scope       TEXT NOT NULL,
  principal   TEXT NOT NULL,
  key         TEXT NOT NULL CHECK (key <> ''),
  fingerprint BLOB NOT NULL,
  begun_at    INTEGER NOT NULL,
  -- Set until there is an answer. The reference is broken, and SQLite refuses to COMMIT with a broken reference: so a
  -- transaction that ends without an answer leaves no writes that a retry would do again.
  unanswered  INTEGER REFERENCES onlyonce_nothing (id) DEFERRABLE INITIALLY DEFERRED,
  status      INTEGER CHECK (status BETWEEN 100 AND 599),
  headers     TEXT CHECK (json_type(headers) = 'object'),
  body        BLOB,
  expires_at  INTEGER,
  CONSTRAINT completed_is_whole
    CHECK ((status IS NULL) + (headers IS NULL) + (body IS NULL) + (expires_at IS NULL) IN (0, 4)),
  CONSTRAINT unanswered_or_completed CHECK ((unanswered IS NULL) = (status IS NOT NULL))
) STRICT;
CREATE INDEX main.onlyonce_transactional_expiry ON onlyonce_transactional (expires_at);

-- The messages that operations cause. A relay ships each of them in the order of `position`, and deletes it. SQLite has
-- one writer at a time, so this is the order of the commits. AUTOINCREMENT: a position is never used again.
CREATE TABLE main.onlyonce_outbox (
  position   INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL CHECK (length(id) = 36),
  operation  TEXT NOT NULL,
  topic      TEXT NOT NULL,
  key        TEXT,
  payload    BLOB NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

-- The messages that consumers have taken, so that a second delivery has no effect.
CREATE TABLE main.onlyonce_inbox (
  consumer   TEXT NOT NULL,
  message_id TEXT NOT NULL,
  seen_at    INTEGER NOT NULL,
  PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX main.onlyonce_inbox_age ON onlyonce_inbox (seen_at);

INSERT INTO main.onlyonce_schema (id, version) VALUES (1, 1);
