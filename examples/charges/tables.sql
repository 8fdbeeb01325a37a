CREATE TABLE IF NOT EXISTS charge (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The last line of defence: an operation has one charge, whatever else fails.
  operation text NOT NULL UNIQUE,
  account   text NOT NULL,
  amount    bigint NOT NULL,
  payment   text NOT NULL
);
CREATE TABLE IF NOT EXISTS refund (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  operation text NOT NULL UNIQUE,
  charge    bigint NOT NULL REFERENCES charge,
  amount    bigint NOT NULL
);
