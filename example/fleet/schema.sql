CREATE SCHEMA IF NOT EXISTS fleet;

-- The states are:
--   home      this cluster serves the tenant
--   left      another cluster serves the tenant or will soon; this cluster still has rows
--   gone      this cluster has no rows any more
--   arriving  rows are being copied to this cluster
-- The column copied is not used. A role with UPDATE on one column may lock the row.
CREATE TABLE IF NOT EXISTS fleet.tenants (
    tenant  text COLLATE "C" PRIMARY KEY,
    state   text COLLATE "C" NOT NULL,
    cluster text COLLATE "C" NOT NULL,
    copied  bigint
);
COMMENT ON COLUMN fleet.tenants.cluster IS 'The home in the states home, left and gone; the source of the rows in the state arriving.';

-- Primary keys of rows that transactions of a tenant have written while a mover listens. For
-- idem.records the key also contains the execution_id.
CREATE TABLE IF NOT EXISTS fleet.changes (
    tenant text COLLATE "C" NOT NULL,
    part   text COLLATE "C" NOT NULL,
    key    jsonb            NOT NULL,
    at     xid8             NOT NULL DEFAULT pg_current_xact_id()
);

-- A mover listens while it waits for or holds this lock. It gets the lock when all transactions
-- have ended that did not note their changes. The lock is released when the session of the mover
-- ends.
CREATE OR REPLACE FUNCTION fleet.note(name text, part text, key jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(1718379894, hashtext(name)) THEN
        INSERT INTO fleet.changes (tenant, part, key) VALUES (name, part, key);
    END IF;
END $$;

-- enter checks that this cluster is the home. A claim does not wait for a move: it fails, and the
-- caller retries without holding a connection. A later statement of an open transaction waits.
-- enter reads the row in a new statement after it has the lock, so that at READ COMMITTED it sees
-- the commit of the mover. At the other isolation levels it locks the row, which is a serialization
-- failure if the mover has changed the row.
CREATE OR REPLACE FUNCTION fleet.enter(name text, waits boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found_state text;
    found_cluster text;
BEGIN
    IF waits THEN
        PERFORM pg_advisory_xact_lock_shared(1718379892, hashtext(name));
    ELSIF NOT pg_try_advisory_xact_lock_shared(1718379892, hashtext(name)) THEN
        RAISE EXCEPTION 'fleet: the tenant is being moved' USING ERRCODE = 'FL002';
    END IF;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT t.state, t.cluster INTO found_state, found_cluster FROM fleet.tenants t WHERE t.tenant = name;
    ELSE
        SELECT t.state, t.cluster INTO found_state, found_cluster FROM fleet.tenants t WHERE t.tenant = name FOR SHARE;
    END IF;
    IF found_state IS DISTINCT FROM 'home' THEN
        RAISE EXCEPTION 'fleet: this cluster is not the home of the tenant'
            USING ERRCODE = 'FL001', DETAIL = CASE WHEN found_state IN ('left', 'gone') THEN found_cluster ELSE '' END;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION fleet.enter_records() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.enter(split_part(NEW.scope, '/', 1), false);
    PERFORM fleet.note(split_part(NEW.scope, '/', 1), 'idem.records', jsonb_build_array(NEW.scope, NEW.key, NEW.execution_id));
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT ON idem.records
    FOR EACH ROW WHEN (NEW.state = 'processing') EXECUTE FUNCTION fleet.enter_records();

CREATE OR REPLACE FUNCTION fleet.enter_inbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.enter(split_part(NEW.consumer, '/', 1), true);
    PERFORM fleet.note(split_part(NEW.consumer, '/', 1), 'idem.inbox', jsonb_build_array(NEW.consumer, NEW.source, NEW.id));
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT ON idem.inbox
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.enter_inbox();

-- A signal to an operation that has moved would never be received here. Steps and signals are
-- copied with their operation.
CREATE OR REPLACE FUNCTION fleet.enter_signals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.enter(split_part(o.scope, '/', 1), true) FROM idem.operations o WHERE o.id = NEW.operation_id;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT ON idem.signals
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.enter_signals();

-- DELETE and UPDATE of a record are noted too. Two cases are not: the completion of a claim,
-- because the claim is noted, and a purge, because the new home purges by itself. A DELETE must be
-- in the home, so that a key that a person frees during a move is freed in the home or not at all.
CREATE OR REPLACE FUNCTION fleet.note_records() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN PERFORM fleet.enter(split_part(OLD.scope, '/', 1), true); END IF;
    PERFORM fleet.note(split_part(OLD.scope, '/', 1), 'idem.records', jsonb_build_array(OLD.scope, OLD.key, OLD.execution_id));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER fleet_note AFTER UPDATE ON idem.records
    FOR EACH ROW WHEN (OLD.state = 'running' AND current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.note_records();
CREATE OR REPLACE TRIGGER fleet_note_delete AFTER DELETE ON idem.records
    FOR EACH ROW WHEN (OLD.expires_at > now() AND current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.note_records();

CREATE OR REPLACE FUNCTION fleet.note_inbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.note(split_part(OLD.consumer, '/', 1), 'idem.inbox', jsonb_build_array(OLD.consumer, OLD.source, OLD.id));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER fleet_note AFTER UPDATE OR DELETE ON idem.inbox
    FOR EACH ROW WHEN (OLD.expires_at > now() AND current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.note_inbox();

CREATE OR REPLACE FUNCTION fleet.note_published() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.note(split_part(NEW.aggregateid, '/', 1), 'idem.published', jsonb_build_array(NEW.id));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER fleet_note AFTER INSERT ON idem.published
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.note_published();

CREATE OR REPLACE FUNCTION fleet.note_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.note(split_part(NEW.scope, '/', 1), 'idem.audit', jsonb_build_array(NEW.at, NEW.id));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER fleet_note AFTER INSERT ON idem.audit
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.note_audit();

CREATE OR REPLACE FUNCTION fleet.note_dead_letters() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    l idem.dead_letters := CASE WHEN TG_OP = 'INSERT' THEN NEW ELSE OLD END;
BEGIN
    PERFORM fleet.note(split_part(CASE WHEN l.side = 'outbox' THEN l.key ELSE l.consumer END, '/', 1),
        'idem.dead_letters', jsonb_build_array(l.side, l.consumer, l.source, l.id));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER fleet_note AFTER INSERT OR UPDATE OR DELETE ON idem.dead_letters
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.note_dead_letters();
