-- Receipts: where prompts and artifacts stand among each other. Every one of them is an item of its thread, with all that it says; a
-- row here repeats what is looked for, and goes with its item. What a row says and its item does not is damage.

-- == Prompts ==

-- The generation is 1 for a prompt that is its own root, and one more than its parent's for every other one.
CREATE TABLE prompts (
  key        INTEGER NOT NULL PRIMARY KEY REFERENCES items (key) ON DELETE CASCADE,
  id         BLOB NOT NULL UNIQUE,
  origin     TEXT NOT NULL,
  parent     BLOB,
  root       BLOB NOT NULL,
  active     BLOB NOT NULL,
  generation INTEGER NOT NULL CHECK (generation BETWEEN 1 AND 256),
  CHECK ((parent IS NULL) = (generation = 1)),
  CHECK (parent IS NOT NULL OR root = id)
) STRICT;
CREATE INDEX prompts_root ON prompts (root, key);

CREATE TRIGGER prompts_stay_as_they_are BEFORE UPDATE ON prompts
BEGIN
  SELECT RAISE(ABORT, 'a receipt stays as it is');
END;

-- == Artifacts ==

-- Their numbers count what the thread wrote, from 1.
CREATE TABLE artifacts (
  key      INTEGER NOT NULL PRIMARY KEY REFERENCES items (key) ON DELETE CASCADE,
  id       BLOB NOT NULL UNIQUE,
  thread   TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  number   INTEGER NOT NULL CHECK (number > 0),
  prompt   BLOB NOT NULL,
  root     BLOB NOT NULL,
  kind     TEXT NOT NULL,
  relation TEXT NOT NULL
) STRICT;
CREATE INDEX artifacts_number ON artifacts (thread, number);
CREATE INDEX artifacts_prompt ON artifacts (prompt, key);
CREATE INDEX artifacts_root ON artifacts (root, key);

CREATE TRIGGER artifacts_stay_as_they_are BEFORE UPDATE ON artifacts
BEGIN
  SELECT RAISE(ABORT, 'an artifact stays as it is');
END;
