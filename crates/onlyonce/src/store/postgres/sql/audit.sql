
-- The audit trail. Each writer has a chain of its own: numbered from 1, each hash over the one before and the entry.
CREATE TABLE {schema}.audit (
  writer    bytea NOT NULL,
  sequence  bigint NOT NULL,
  hash      bytea NOT NULL,
  at        timestamptz NOT NULL,
  kind      text NOT NULL,
  id        uuid,
  key       bytea,
  route     text NOT NULL,
  principal bytea,
  attempt   integer,
  status    integer,
  count     bigint,
  who       text,
  why       text,
  ids       text,
  PRIMARY KEY (writer, sequence)
);
CREATE INDEX audit_at ON {schema}.audit (at, writer, sequence);
CREATE INDEX audit_id ON {schema}.audit (id) WHERE id IS NOT NULL;

-- Where each chain ends, and from where on it is kept; written in the commit of its entries.
CREATE TABLE {schema}.audit_head (
  writer        bytea PRIMARY KEY,
  sequence      bigint NOT NULL,
  hash          bytea NOT NULL,
  from_sequence bigint NOT NULL DEFAULT 0,
  from_hash     bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
  appended      bytea NOT NULL
) WITH (fillfactor = 50);
