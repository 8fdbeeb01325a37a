-- The tables of this version, which no version before it may use. The checks restate which columns a state has.
CREATE TABLE {schema}.meta (
  one           smallint PRIMARY KEY CHECK (one = 1),
  version       integer NOT NULL,
  oldest        integer NOT NULL,
  generation    uuid NOT NULL,
  moved_to      text,
  -- The store whose records are being copied here. Nobody uses the schema until that is done.
  imported_from text
);
INSERT INTO {schema}.meta VALUES (1, {version}, {version}, gen_random_uuid(), NULL, NULL);

CREATE TABLE {schema}.check_value (name text PRIMARY KEY, value text NOT NULL);

CREATE TABLE {schema}.record (
  id                    uuid NOT NULL,
  -- {running} running, {unknown} unknown, {released} released, {completed} completed.
  state                 smallint NOT NULL CHECK (state BETWEEN 1 AND 4),
  format                smallint NOT NULL DEFAULT {format} CHECK (format >= 1),
  attempt               integer NOT NULL CHECK (attempt >= 1),
  token                 uuid NOT NULL,
  count                 bigint NOT NULL CHECK (count >= 1),
  key                   text NOT NULL,
  route                 text NOT NULL,
  target                text NOT NULL DEFAULT '',
  principal             bytea NOT NULL CHECK (octet_length(principal) = 32),
  fingerprint_version   smallint NOT NULL CHECK (fingerprint_version BETWEEN 0 AND 255),
  fingerprint_canonical bytea NOT NULL CHECK (octet_length(fingerprint_canonical) = 32),
  fingerprint_raw       bytea NOT NULL CHECK (octet_length(fingerprint_raw) = 32),
  first_claimed_at      timestamptz NOT NULL,
  lease_ms              bigint NOT NULL CHECK (lease_ms >= 1),
  quiet_ms              bigint NOT NULL CHECK (quiet_ms >= 0),
  ttl_ms                bigint NOT NULL CHECK (ttl_ms >= 0),
  lease_until           timestamptz,
  unknown_since         timestamptz,
  expires_at            timestamptz,
  taken_from            smallint CHECK (taken_from IN ({unknown}, {released})),
  taken_at              timestamptz,
  settled_by            smallint CHECK (settled_by BETWEEN 1 AND 4),
  head                  bytea,
  body                  bytea,
  CONSTRAINT running_has_a_lease CHECK ((state = {running}) = (lease_until IS NOT NULL)),
  CONSTRAINT unknown_has_a_since CHECK ((state = {unknown}) = (unknown_since IS NOT NULL)),
  CONSTRAINT final_expires CHECK ((state IN ({released}, {completed})) = (expires_at IS NOT NULL)),
  CONSTRAINT completed_has_a_response
    CHECK (CASE WHEN state = {completed} THEN head IS NOT NULL AND settled_by IS NOT NULL
                ELSE head IS NULL AND body IS NULL AND settled_by IS NULL END),
  CONSTRAINT taken_from_a_moment CHECK ((taken_from IS NULL) = (taken_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
ALTER TABLE {schema}.record ALTER body SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX record_id ON {schema}.record (id);
CREATE INDEX record_running ON {schema}.record (id) WHERE state = {running};
CREATE INDEX record_unknown ON {schema}.record (id) WHERE state = {unknown};
CREATE INDEX record_expiry ON {schema}.record (expires_at) WHERE expires_at IS NOT NULL;

-- So many milliseconds after a moment. What a timestamp cannot say is never; that is after more than 100,000 years.
CREATE FUNCTION {schema}.after(moment timestamptz, ms bigint) RETURNS timestamptz LANGUAGE sql STABLE
  RETURN CASE WHEN ms > 4000000000000000 THEN 'infinity' ELSE moment + ms * interval '1 millisecond' END;

-- What a person reads. The first byte of a head is its format, the next two are the status.
CREATE VIEW {schema}.operation AS
  SELECT id,
         CASE state WHEN {running} THEN 'running' WHEN {unknown} THEN 'unknown'
                    WHEN {released} THEN 'released' WHEN {completed} THEN 'completed' END AS state,
         key, route, encode(principal, 'hex') AS principal, attempt, attempt - 1 AS retries,
         get_byte(head, 1) + 256 * get_byte(head, 2) AS status, octet_length(body) AS body_bytes,
         first_claimed_at, lease_until, unknown_since, expires_at,
         CASE settled_by WHEN 1 THEN 'owner' WHEN 2 THEN 'policy' WHEN 3 THEN 'reconcile' WHEN 4 THEN 'operator' END
           AS settled_by
    FROM {schema}.record;
