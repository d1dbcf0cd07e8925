-- One row per chain of events. `seq` and `head` are its end, `first` and `last` the ids of its outermost events; `signed`
-- is how far a checkpoint covers it.
CREATE TABLE chains (
  id      INTEGER PRIMARY KEY,
  name    TEXT    NOT NULL UNIQUE,
  session TEXT,
  seq     INTEGER NOT NULL,
  head    BLOB    NOT NULL CHECK (length(head) = 32),
  first   INTEGER NOT NULL,
  last    INTEGER NOT NULL,
  signed  INTEGER NOT NULL,
  pending INTEGER NOT NULL CHECK (pending >= 0)
) STRICT;
CREATE INDEX chains_session ON chains (session) WHERE session IS NOT NULL;

-- `standing` is how the call stands; every other column is there to find it by. `run` is `=` and the run's name, or
-- empty.
CREATE TABLE calls (
  n               INTEGER PRIMARY KEY,
  id              BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
  chain           INTEGER NOT NULL REFERENCES chains (id),
  principal       TEXT    NOT NULL,
  session         TEXT,
  run             TEXT    NOT NULL,
  key             TEXT,
  argument_digest BLOB    NOT NULL CHECK (length(argument_digest) = 32),
  state           TEXT    NOT NULL,
  holding         INTEGER NOT NULL,
  denied          INTEGER NOT NULL,
  due_at          INTEGER,
  version         INTEGER NOT NULL,
  standing        TEXT    NOT NULL
) STRICT;
-- What each call asks for: apart, because it is written once while the call is written with every step.
CREATE TABLE requests (
  call INTEGER PRIMARY KEY REFERENCES calls (n),
  body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX calls_key ON calls (principal, chain, run, key) WHERE key IS NOT NULL;
CREATE INDEX calls_principal ON calls (principal, id);
CREATE INDEX calls_session ON calls (session, id) WHERE session IS NOT NULL;
CREATE INDEX calls_arguments ON calls (argument_digest, id);
-- The queue: small however many old calls there are, and it answers every filter by itself.
CREATE INDEX calls_holding ON calls (id, session, principal, argument_digest) WHERE holding = 1;
CREATE INDEX calls_due ON calls (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX calls_denied ON calls (principal, chain, run, argument_digest, id) WHERE denied = 1;
CREATE INDEX calls_doubt ON calls (chain, argument_digest, id) WHERE state = 'in_doubt';
-- States that a call rests in and that are seldom. Those it passes through have `due_at`, and success is the rule.
-- One comparison each, because SQLite makes a table of its own for a list.
CREATE INDEX calls_seldom ON calls (state, id) WHERE state <> 'allowed' AND state <> 'pending'
  AND state <> 'approved' AND state <> 'executing' AND state <> 'succeeded';

CREATE TABLE holds (
  id   BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  call INTEGER NOT NULL REFERENCES calls (n)
) STRICT, WITHOUT ROWID;

-- `target` is what it is looked up by: the argument digest of an exact grant, else the tool.
CREATE TABLE grants (
  id         BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
  principal  TEXT    NOT NULL,
  session    TEXT,
  target     BLOB    NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked    INTEGER NOT NULL,
  version    INTEGER NOT NULL,
  body       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_target ON grants (target, principal, expires_at) WHERE revoked = 0;

-- Ids grow without reuse, because no row is ever deleted.
CREATE TABLE events (
  id    INTEGER PRIMARY KEY,
  chain INTEGER NOT NULL REFERENCES chains (id),
  seq   INTEGER NOT NULL,
  name  TEXT    NOT NULL,
  call  BLOB,
  hold  BLOB,
  at    INTEGER NOT NULL,
  hash  BLOB    NOT NULL CHECK (length(hash) = 32),
  body  TEXT    NOT NULL
) STRICT;
-- A chain's events, by stretches of the log: so all chains grow in the same few pages, not each in a page of its own.
CREATE UNIQUE INDEX events_chain ON events (id >> 10, chain, seq);
CREATE INDEX events_call ON events (call) WHERE call IS NOT NULL;
CREATE TRIGGER events_are_kept BEFORE DELETE ON events BEGIN
  SELECT RAISE(ABORT, 'events are never deleted');
END;

-- `all`, or `agent:` and a name.
CREATE TABLE halts (
  who TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- One row. `signed_event` is the last event the last checkpoint covers.
CREATE TABLE meta (
  one             INTEGER PRIMARY KEY CHECK (one = 1),
  pending         INTEGER NOT NULL CHECK (pending >= 0),
  policy          TEXT,
  signed_event    INTEGER NOT NULL,
  last_checkpoint BLOB
) STRICT;
INSERT INTO meta (one, pending, signed_event) VALUES (1, 0, 0);

-- How many calls of each principal wait; no row is none.
CREATE TABLE waiting (
  principal TEXT    NOT NULL PRIMARY KEY,
  pending   INTEGER NOT NULL CHECK (pending >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE policies (
  version TEXT NOT NULL PRIMARY KEY,
  source  TEXT NOT NULL
) STRICT;

CREATE TABLE records (
  namespace  TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  value      BLOB    NOT NULL,
  version    INTEGER NOT NULL,
  expires_at INTEGER,
  UNIQUE (namespace, key)
) STRICT;
CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
