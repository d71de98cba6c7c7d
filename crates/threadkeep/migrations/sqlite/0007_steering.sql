-- Steering: messages into threads from outside, and requests that somebody answers.

-- == Inbox ==

-- The messages into a thread. Its number is the tick that the thread got when it was accepted; its place is where it stands among
-- those of its urgency. What was taken has its prompt in the thread: both happened in one transaction.
CREATE TABLE messages (
  id           BLOB NOT NULL PRIMARY KEY,
  thread       TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
  number       INTEGER NOT NULL,
  key          TEXT,
  state        TEXT NOT NULL,
  policy       TEXT NOT NULL,
  priority     INTEGER NOT NULL,
  urgency      INTEGER NOT NULL,
  place        INTEGER NOT NULL,
  format       TEXT NOT NULL,
  body         TEXT NOT NULL,
  masked       INTEGER NOT NULL CHECK (masked IN (0, 1)),
  sender       TEXT NOT NULL,
  source       TEXT,
  accepted_at  INTEGER NOT NULL,
  expires_at   INTEGER,
  token        BLOB,
  epoch        INTEGER,
  item         BLOB,
  turn         INTEGER,
  taken_at     INTEGER,
  delivered_at INTEGER,
  ended_at     INTEGER,
  outcome      TEXT,
  tick         INTEGER NOT NULL,
  CHECK (state <> 'queued' OR (token IS NULL AND ended_at IS NULL)),
  CHECK ((token IS NULL) = (taken_at IS NULL) AND (token IS NULL) = (item IS NULL) AND (token IS NULL) = (epoch IS NULL)),
  CHECK (state NOT IN ('taken', 'delivered', 'acted', 'failed') OR token IS NOT NULL),
  CHECK (state NOT IN ('expired', 'withdrawn', 'rejected') OR token IS NULL),
  CHECK (delivered_at IS NULL OR taken_at IS NOT NULL)
) STRICT;
CREATE INDEX messages_number ON messages (thread, number, id);
CREATE UNIQUE INDEX messages_key ON messages (thread, key) WHERE key IS NOT NULL;
CREATE INDEX messages_token ON messages (thread, token) WHERE token IS NOT NULL;
CREATE INDEX messages_next ON messages (thread, urgency DESC, place, id) WHERE state = 'queued';
CREATE INDEX messages_in_hand ON messages (thread, number) WHERE state IN ('taken', 'delivered');

-- What was said and taken stays as it is; its texts may be masked.
CREATE TRIGGER messages_keep_their_prompt BEFORE UPDATE OF id, thread, number, key, token, epoch, item, turn, taken_at ON messages
WHEN OLD.token IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'a message is taken once');
END;

-- == Requests ==

-- Requests for an approval or an enrolment. A request of a thread goes with it. Whatever its options say: from elsewhere than this
-- machine no lasting right is granted, and no enrolment.
CREATE TABLE requests (
  id           BLOB NOT NULL PRIMARY KEY,
  workspace    BLOB NOT NULL REFERENCES workspaces (id),
  thread       TEXT REFERENCES threads (id) ON DELETE CASCADE,
  number       INTEGER NOT NULL,
  kind         TEXT NOT NULL,
  subject      TEXT NOT NULL,
  detail       TEXT,
  fingerprint  BLOB NOT NULL,
  danger       TEXT NOT NULL,
  options      TEXT NOT NULL,
  unowned      TEXT NOT NULL,
  masked       INTEGER NOT NULL CHECK (masked IN (0, 1)),
  holder       TEXT NOT NULL,
  machine      TEXT NOT NULL,
  hostname     TEXT NOT NULL,
  pid          INTEGER NOT NULL,
  label        TEXT NOT NULL,
  boot         TEXT NOT NULL,
  namespace    TEXT NOT NULL,
  start_ticks  INTEGER NOT NULL,
  owned_at     INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  epoch        INTEGER,
  created_at   INTEGER NOT NULL,
  expires_at   INTEGER,
  state        TEXT NOT NULL,
  resolved_at  INTEGER,
  resolved_by  TEXT,
  channel      TEXT,
  choice       TEXT,
  effect       TEXT,
  note         TEXT,
  token        BLOB,
  consumed_at  INTEGER,
  CHECK ((state = 'pending') = (resolved_at IS NULL)),
  CHECK ((choice IS NULL) = (effect IS NULL)),
  CHECK (state <> 'answered' OR (choice IS NOT NULL AND resolved_by IS NOT NULL AND channel IS NOT NULL)),
  CHECK (state NOT IN ('pending', 'cancelled', 'expired') OR choice IS NULL),
  CHECK (effect IS NULL OR effect = 'deny' OR (channel IS NOT NULL AND channel = 'local')
    OR (kind = 'approval' AND effect IN ('allow_once', 'allow_thread'))),
  CHECK ((token IS NULL) = (consumed_at IS NULL)),
  CHECK (token IS NULL OR state = 'answered')
) STRICT;
CREATE INDEX requests_number ON requests (number, id);
CREATE INDEX requests_workspace ON requests (workspace, number, id);
CREATE INDEX requests_thread ON requests (thread, number, id) WHERE thread IS NOT NULL;
CREATE INDEX requests_due ON requests (expires_at) WHERE state = 'pending' AND expires_at IS NOT NULL;
CREATE INDEX requests_owner ON requests (holder) WHERE state = 'pending';

CREATE TRIGGER requests_ask_for_one_thing BEFORE UPDATE OF id, thread, number, kind, fingerprint, danger, created_at, expires_at
ON requests
BEGIN
  SELECT RAISE(ABORT, 'a request asks for one thing');
END;

CREATE TRIGGER requests_are_resolved_once BEFORE UPDATE OF state, resolved_at, resolved_by, channel, choice, effect ON requests
WHEN OLD.state <> 'pending'
BEGIN
  SELECT RAISE(ABORT, 'a request is resolved once');
END;

CREATE TRIGGER requests_are_consumed_once BEFORE UPDATE OF token, consumed_at ON requests
WHEN OLD.token IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'an answer is used once');
END;
