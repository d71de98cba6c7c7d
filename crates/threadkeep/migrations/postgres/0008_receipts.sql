-- Receipts: where prompts and artifacts stand among each other. Every one of them is an item of its thread, with all that it says; a
-- row here repeats what is looked for, and goes with its item. What a row says and its item does not is damage. The same tables
-- as for SQLite.

-- == Prompts ==

-- The generation is 1 for a prompt that is its own root, and one more than its parent's for every other one.
CREATE TABLE prompts (
  key        BIGINT NOT NULL PRIMARY KEY REFERENCES items (key) ON DELETE CASCADE,
  id         BYTEA NOT NULL UNIQUE,
  origin     TEXT COLLATE "C" NOT NULL,
  parent     BYTEA,
  root       BYTEA NOT NULL,
  active     BYTEA NOT NULL,
  generation BIGINT NOT NULL CHECK (generation BETWEEN 1 AND 256),
  CHECK ((parent IS NULL) = (generation = 1)),
  CHECK (parent IS NOT NULL OR root = id)
);
CREATE INDEX prompts_root ON prompts (root, key);

CREATE FUNCTION prompts_stay_as_they_are() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a receipt stays as it is';
END;
$$;
CREATE TRIGGER prompts_stay_as_they_are BEFORE UPDATE ON prompts
FOR EACH ROW EXECUTE FUNCTION prompts_stay_as_they_are();

-- == Artifacts ==

-- Their numbers count what the thread wrote, from 1.
CREATE TABLE artifacts (
  key      BIGINT NOT NULL PRIMARY KEY REFERENCES items (key) ON DELETE CASCADE,
  id       BYTEA NOT NULL UNIQUE,
  thread   TEXT COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  number   BIGINT NOT NULL CHECK (number > 0),
  prompt   BYTEA NOT NULL,
  root     BYTEA NOT NULL,
  kind     TEXT COLLATE "C" NOT NULL,
  relation TEXT COLLATE "C" NOT NULL
);
CREATE INDEX artifacts_number ON artifacts (thread, number);
CREATE INDEX artifacts_prompt ON artifacts (prompt, key);
CREATE INDEX artifacts_root ON artifacts (root, key);

CREATE FUNCTION artifacts_stay_as_they_are() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'an artifact stays as it is';
END;
$$;
CREATE TRIGGER artifacts_stay_as_they_are BEFORE UPDATE ON artifacts
FOR EACH ROW EXECUTE FUNCTION artifacts_stay_as_they_are();
