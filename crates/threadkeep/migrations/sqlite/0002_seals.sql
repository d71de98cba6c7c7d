-- Seals: signed statements of where threads stand. Purges on record. What a verification has seen.

CREATE TABLE seals (
  number     INTEGER NOT NULL PRIMARY KEY,
  prev       BLOB NOT NULL,
  hash       BLOB NOT NULL UNIQUE,
  sealed_at  INTEGER NOT NULL,
  public_key BLOB NOT NULL,
  heads      INTEGER NOT NULL,
  digest     BLOB NOT NULL,
  purges     INTEGER NOT NULL,
  purge_hash BLOB NOT NULL,
  signature  BLOB NOT NULL
) STRICT;

-- What a seal states: at that time the branch held an item with this hash at this depth.
-- An empty branch states the thread alone, which had no item.
CREATE TABLE seal_heads (
  seal   INTEGER NOT NULL REFERENCES seals (number),
  thread TEXT NOT NULL,
  branch BLOB NOT NULL,
  depth  INTEGER NOT NULL,
  hash   BLOB NOT NULL,
  tick   INTEGER NOT NULL,
  epoch  INTEGER NOT NULL,
  PRIMARY KEY (seal, thread, branch)
) STRICT, WITHOUT ROWID;
CREATE INDEX seal_heads_thread ON seal_heads (thread, seal);

-- Every purge, in a chain of its own; the next seal signs for it.
CREATE TABLE purges (
  number    INTEGER NOT NULL PRIMARY KEY,
  prev      BLOB NOT NULL,
  hash      BLOB NOT NULL UNIQUE,
  thread    TEXT NOT NULL,
  epoch     INTEGER NOT NULL,
  purged_at INTEGER NOT NULL
) STRICT;
CREATE INDEX purges_thread ON purges (thread);

-- How far each branch was found in order, for a verification that looks at what is new.
CREATE TABLE verified (
  branch      INTEGER NOT NULL PRIMARY KEY REFERENCES branches (key) ON DELETE CASCADE,
  depth       INTEGER NOT NULL,
  hash        BLOB NOT NULL,
  verified_at INTEGER NOT NULL
) STRICT;
