-- A call's row says where its events begin and end, and they lie on its chain: so no index of its own finds them.
ALTER TABLE calls ADD COLUMN first_event INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN last_event INTEGER NOT NULL DEFAULT 0;
UPDATE calls SET first_event = coalesce((SELECT min(e.id) FROM events e WHERE e.call = calls.id), 0),
  last_event = coalesce((SELECT max(e.id) FROM events e WHERE e.call = calls.id), 0);
DROP INDEX events_call;
-- That a chain numbers its events without gap or double is seen to where its row is written.
DROP INDEX events_chain;
CREATE INDEX events_chain ON events (id >> 10, chain);

-- Calls by stretches too: whoever submits them, all write to the same few pages. So little of a digest finds one in its
-- stretch.
DROP INDEX calls_session;
CREATE INDEX calls_chain ON calls (n >> 10, chain);
DROP INDEX calls_principal;
CREATE INDEX calls_principal ON calls (n >> 10, principal);
DROP INDEX calls_arguments;
CREATE INDEX calls_arguments ON calls (n >> 10, substr(argument_digest, 1, 4));

-- How many calls wait in all is the sum over principals.
ALTER TABLE meta DROP COLUMN pending;
