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

-- The messages that operations cause. A relay leases each of them, ships it and deletes it: docs/outbox.md. SQLite has one
-- writer at a time, so `position` is the order of the commits. AUTOINCREMENT: a position is never used again.
CREATE TABLE main.onlyonce_outbox (
  position   INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE CHECK (length(id) = 36),
  operation  TEXT NOT NULL,
  topic      TEXT NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 255),
  -- Messages of one topic and key are shipped in order. NULL: in any order.
  key        TEXT CHECK (octet_length(key) <= 1024),
  -- The messages of one topic and lane are shipped one after the other. A message without a key has a lane of its own.
  lane       TEXT NOT NULL GENERATED ALWAYS AS (coalesce('=' || key, id)) STORED,
  created_at INTEGER NOT NULL,
  -- From when on a relay may lease it: after the lease of another relay, or the pause before a retry. Parked: never.
  due_at     INTEGER NOT NULL DEFAULT 0,
  -- Which lease it has, or had until due_at.
  lease      BLOB,
  -- How often the sink has refused it.
  attempts   INTEGER NOT NULL DEFAULT 0,
  parked_at  INTEGER,
  -- Why it was not shipped at the last attempt.
  error      TEXT,
  -- The last column: a look at the others reads none of its pages.
  payload    BLOB NOT NULL CHECK (octet_length(payload) <= 1048576),
  CONSTRAINT parked_is_never_due CHECK ((parked_at IS NULL) = (due_at < 9223372036854775807)),
  CONSTRAINT parked_has_no_lease CHECK (parked_at IS NULL OR lease IS NULL)
) STRICT;
CREATE INDEX main.onlyonce_outbox_lane ON onlyonce_outbox (topic, lane, position, due_at);
CREATE INDEX main.onlyonce_outbox_parked ON onlyonce_outbox (position) WHERE parked_at IS NOT NULL;

-- The messages that consumers have taken, so that a second delivery has no effect.
CREATE TABLE main.onlyonce_inbox (
  consumer   TEXT NOT NULL,
  message_id TEXT NOT NULL,
  seen_at    INTEGER NOT NULL,
  PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX main.onlyonce_inbox_age ON onlyonce_inbox (seen_at);

INSERT INTO main.onlyonce_schema (id, version) VALUES (1, 1);
