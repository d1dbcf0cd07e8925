-- The first schema. Names compare by their bytes (collation C), on every server alike.
-- A grant or event is its JSON `body`, kept as text so that its bytes stay what they were; a call is the `body` of its
-- request and its `standing`. The columns beside them are there to be searched.

-- How each call stands: written with every step, so its indexes are few, and most of them hold only calls on their way.
CREATE TABLE calls (
    id              uuid PRIMARY KEY,
    chain           text COLLATE "C" NOT NULL,
    principal       text COLLATE "C" NOT NULL,
    session         text COLLATE "C",
    -- The run, else the session, else empty: where a key and a denial count.
    place           text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    holding         boolean NOT NULL,
    -- Denied by a person, so that an identical call of the same run is denied too.
    denied          boolean NOT NULL,
    due_at          bigint,
    argument_digest bytea NOT NULL,
    version         bigint NOT NULL,
    standing        text NOT NULL
);
CREATE INDEX calls_denied ON calls (chain, principal, place, argument_digest) WHERE denied;
CREATE INDEX calls_doubt ON calls (chain, argument_digest) WHERE state = 'in_doubt';
CREATE INDEX calls_due ON calls (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX calls_holding ON calls (id) WHERE holding;
CREATE INDEX calls_holding_session ON calls (session, id) WHERE holding;
-- States that a call rests in and that are seldom. Those it passes through have `due_at`, and success is the rule.
CREATE INDEX calls_seldom ON calls (state, id)
    WHERE state NOT IN ('allowed', 'pending', 'approved', 'executing', 'succeeded');

-- What each call asks for: written once. Only an approver's edit changes it.
CREATE TABLE requests (
    call            uuid PRIMARY KEY,
    chain           text COLLATE "C" NOT NULL,
    principal       text COLLATE "C" NOT NULL,
    session         text COLLATE "C",
    place           text COLLATE "C" NOT NULL,
    key             text COLLATE "C",
    argument_digest bytea NOT NULL,
    body            text NOT NULL
);
CREATE UNIQUE INDEX requests_key ON requests (chain, principal, place, key) WHERE key IS NOT NULL;
CREATE INDEX requests_session ON requests (session, call);
CREATE INDEX requests_principal ON requests (principal, call);
CREATE INDEX requests_argument ON requests (argument_digest, call);

CREATE TABLE holds (
    id   uuid PRIMARY KEY,
    call uuid NOT NULL
);

CREATE TABLE grants (
    id              uuid PRIMARY KEY,
    tool            text COLLATE "C" NOT NULL,
    session         text COLLATE "C",
    -- Set exactly where the grant covers one set of arguments and nothing else.
    argument_digest bytea,
    expires_at      bigint NOT NULL,
    revoked         boolean NOT NULL,
    limited         boolean NOT NULL,
    version         bigint NOT NULL,
    body            text NOT NULL
);
CREATE INDEX grants_exact ON grants (argument_digest) WHERE argument_digest IS NOT NULL AND NOT revoked;
CREATE INDEX grants_wide ON grants (tool) WHERE argument_digest IS NULL AND NOT revoked;

CREATE TABLE chains (
    name    text COLLATE "C" PRIMARY KEY,
    session text COLLATE "C",
    seq     bigint NOT NULL,
    head    bytea NOT NULL,
    signed  bigint NOT NULL,
    pending bigint NOT NULL
);
CREATE INDEX chains_moved ON chains (name) WHERE signed < seq;
CREATE INDEX chains_session ON chains (session) WHERE session IS NOT NULL;

-- Numbers are taken before commit, so a tail must not go by `id` alone: it reads whole transactions, oldest first, and
-- only those below which none is still open.
CREATE TABLE events (
    id    bigserial,
    xid   xid8 NOT NULL DEFAULT pg_current_xact_id(),
    chain text COLLATE "C" NOT NULL,
    seq   bigint NOT NULL,
    name  text COLLATE "C" NOT NULL,
    call  uuid,
    hold  uuid,
    at    bigint NOT NULL,
    hash  bytea NOT NULL,
    body  text NOT NULL,
    PRIMARY KEY (xid, id)
);
CREATE INDEX events_chain ON events (chain, xid, id);
CREATE INDEX events_call ON events (call, xid, id) WHERE call IS NOT NULL;

-- `all`, or `agent:NAME`.
CREATE TABLE halts (
    scope text COLLATE "C" PRIMARY KEY
);

-- One row: what holds for all nodes.
CREATE TABLE ruling (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    policy_version text COLLATE "C",
    policy_source  text,
    checkpoint     bytea
);
INSERT INTO ruling DEFAULT VALUES;

CREATE TABLE records (
    namespace  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      bytea NOT NULL,
    version    bigint NOT NULL,
    expires_at bigint,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
