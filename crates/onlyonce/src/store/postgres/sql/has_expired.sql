-- Whether a record has expired at $1 that did not expire before $2.
WITH {clock}
SELECT c.now, EXISTS (
         SELECT FROM {schema}.record r
          WHERE r.expires_at BETWEEN $2::timestamptz AND $1::timestamptz
            AND r.state IN ({released}, {completed}) AND r.format = {format}) AS has_expired
  FROM clock c
