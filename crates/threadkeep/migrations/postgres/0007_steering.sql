-- Steering: messages into threads from outside, and requests that somebody answers. The same tables as for SQLite.

-- == Inbox ==

-- The messages into a thread. Its number is the tick that the thread got when it was accepted; its place is where it stands among
-- those of its urgency. What was taken has its prompt in the thread: both happened in one transaction.
CREATE TABLE messages (
  id           BYTEA NOT NULL PRIMARY KEY,
  thread       TEXT COLLATE "C" NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  number       BIGINT NOT NULL,
  key          TEXT COLLATE "C",
  state        TEXT COLLATE "C" NOT NULL,
  policy       TEXT COLLATE "C" NOT NULL,
  priority     BIGINT NOT NULL,
  urgency      BIGINT NOT NULL,
  place        BIGINT NOT NULL,
  format       TEXT COLLATE "C" NOT NULL,
  body         TEXT COLLATE "C" NOT NULL,
  masked       BIGINT NOT NULL CHECK (masked IN (0, 1)),
  sender       TEXT COLLATE "C" NOT NULL,
  source       TEXT COLLATE "C",
  accepted_at  BIGINT NOT NULL,
  expires_at   BIGINT,
  token        BYTEA,
  epoch        BIGINT,
  item         BYTEA,
  turn         BIGINT,
  taken_at     BIGINT,
  delivered_at BIGINT,
  ended_at     BIGINT,
  outcome      TEXT COLLATE "C",
  tick         BIGINT NOT NULL,
  CHECK (state <> 'queued' OR (token IS NULL AND ended_at IS NULL)),
  CHECK ((token IS NULL) = (taken_at IS NULL) AND (token IS NULL) = (item IS NULL) AND (token IS NULL) = (epoch IS NULL)),
  CHECK (state NOT IN ('taken', 'delivered', 'acted', 'failed') OR token IS NOT NULL),
  CHECK (state NOT IN ('expired', 'withdrawn', 'rejected') OR token IS NULL),
  CHECK (delivered_at IS NULL OR taken_at IS NOT NULL)
);
CREATE INDEX messages_number ON messages (thread, number, id);
CREATE UNIQUE INDEX messages_key ON messages (thread, key) WHERE key IS NOT NULL;
CREATE INDEX messages_token ON messages (thread, token) WHERE token IS NOT NULL;
CREATE INDEX messages_next ON messages (thread, urgency DESC, place, id) WHERE state = 'queued';
CREATE INDEX messages_in_hand ON messages (thread, number) WHERE state IN ('taken', 'delivered');

-- What was said and taken stays as it is; its texts may be masked.
CREATE FUNCTION messages_keep_their_prompt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a message is taken once';
END;
$$;
CREATE TRIGGER messages_keep_their_prompt BEFORE UPDATE OF id, thread, number, key, token, epoch, item, turn, taken_at ON messages
FOR EACH ROW WHEN (OLD.token IS NOT NULL) EXECUTE FUNCTION messages_keep_their_prompt();

-- == Requests ==

-- Requests for an approval or an enrolment. A request of a thread goes with it. Whatever its options say: from elsewhere than this
-- machine no lasting right is granted, and no enrolment.
CREATE TABLE requests (
  id           BYTEA NOT NULL PRIMARY KEY,
  workspace    BYTEA NOT NULL REFERENCES workspaces (id),
  thread       TEXT COLLATE "C" REFERENCES threads (id) ON DELETE CASCADE,
  number       BIGINT NOT NULL,
  kind         TEXT COLLATE "C" NOT NULL,
  subject      TEXT COLLATE "C" NOT NULL,
  detail       TEXT COLLATE "C",
  fingerprint  BYTEA NOT NULL,
  danger       TEXT COLLATE "C" NOT NULL,
  options      TEXT COLLATE "C" NOT NULL,
  unowned      TEXT COLLATE "C" NOT NULL,
  masked       BIGINT NOT NULL CHECK (masked IN (0, 1)),
  holder       TEXT COLLATE "C" NOT NULL,
  machine      TEXT COLLATE "C" NOT NULL,
  hostname     TEXT COLLATE "C" NOT NULL,
  pid          BIGINT NOT NULL,
  label        TEXT COLLATE "C" NOT NULL,
  boot         TEXT COLLATE "C" NOT NULL,
  namespace    TEXT COLLATE "C" NOT NULL,
  start_ticks  BIGINT NOT NULL,
  owned_at     BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  epoch        BIGINT,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT,
  state        TEXT COLLATE "C" NOT NULL,
  resolved_at  BIGINT,
  resolved_by  TEXT COLLATE "C",
  channel      TEXT COLLATE "C",
  choice       TEXT COLLATE "C",
  effect       TEXT COLLATE "C",
  note         TEXT COLLATE "C",
  token        BYTEA,
  consumed_at  BIGINT,
  CHECK ((state = 'pending') = (resolved_at IS NULL)),
  CHECK ((choice IS NULL) = (effect IS NULL)),
  CHECK (state <> 'answered' OR (choice IS NOT NULL AND resolved_by IS NOT NULL AND channel IS NOT NULL)),
  CHECK (state NOT IN ('pending', 'cancelled', 'expired') OR choice IS NULL),
  CHECK (effect IS NULL OR effect = 'deny' OR (channel IS NOT NULL AND channel = 'local')
    OR (kind = 'approval' AND effect IN ('allow_once', 'allow_thread'))),
  CHECK ((token IS NULL) = (consumed_at IS NULL)),
  CHECK (token IS NULL OR state = 'answered')
);
CREATE INDEX requests_number ON requests (number, id);
CREATE INDEX requests_workspace ON requests (workspace, number, id);
CREATE INDEX requests_thread ON requests (thread, number, id) WHERE thread IS NOT NULL;
CREATE INDEX requests_due ON requests (expires_at) WHERE state = 'pending' AND expires_at IS NOT NULL;
CREATE INDEX requests_owner ON requests (holder) WHERE state = 'pending';

CREATE FUNCTION requests_ask_for_one_thing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a request asks for one thing';
END;
$$;
CREATE TRIGGER requests_ask_for_one_thing BEFORE UPDATE OF id, thread, number, kind, fingerprint, danger, created_at, expires_at
ON requests
FOR EACH ROW EXECUTE FUNCTION requests_ask_for_one_thing();

CREATE FUNCTION requests_are_resolved_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'a request is resolved once';
END;
$$;
CREATE TRIGGER requests_are_resolved_once BEFORE UPDATE OF state, resolved_at, resolved_by, channel, choice, effect ON requests
FOR EACH ROW WHEN (OLD.state <> 'pending') EXECUTE FUNCTION requests_are_resolved_once();

CREATE FUNCTION requests_are_consumed_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation', MESSAGE = 'an answer is used once';
END;
$$;
CREATE TRIGGER requests_are_consumed_once BEFORE UPDATE OF token, consumed_at ON requests
FOR EACH ROW WHEN (OLD.token IS NOT NULL) EXECUTE FUNCTION requests_are_consumed_once();

-- What the planner samples would keep values of content that was taken away.
ALTER TABLE messages ALTER COLUMN body SET STATISTICS 0, ALTER COLUMN sender SET STATISTICS 0, ALTER COLUMN source SET STATISTICS 0,
  ALTER COLUMN outcome SET STATISTICS 0;
ALTER TABLE requests ALTER COLUMN subject SET STATISTICS 0, ALTER COLUMN detail SET STATISTICS 0, ALTER COLUMN options SET STATISTICS 0,
  ALTER COLUMN note SET STATISTICS 0;
