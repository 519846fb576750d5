CREATE SCHEMA IF NOT EXISTS fleet;

-- home: this cluster answers for the tenant. left: another one does, or will, and rows are still here. gone: no rows are here any
-- more. arriving: rows are being copied to this one; those whose transaction is at or beyond copied are yet to be.
CREATE TABLE IF NOT EXISTS fleet.tenants (
    tenant  text COLLATE "C" PRIMARY KEY,
    state   text COLLATE "C" NOT NULL,
    cluster text COLLATE "C" NOT NULL,
    copied  bigint
);
COMMENT ON COLUMN fleet.tenants.cluster IS 'Where the home is, or where the rows come from.';

-- A claim does not wait for a move: it fails, and its caller asks again without holding a connection. What is in the middle of its
-- transaction waits. A statement of its own reads the row, after the lock: at READ COMMITTED it sees what the mover has
-- committed. A transaction that keeps a snapshot locks the row, and gets a serialization failure if that has changed.
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
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT ON idem.records
    FOR EACH ROW WHEN (NEW.state = 'processing') EXECUTE FUNCTION fleet.enter_records();

CREATE OR REPLACE FUNCTION fleet.enter_inbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.enter(split_part(NEW.consumer, '/', 1), true);
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT ON idem.inbox
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.enter_inbox();

-- A signal to an operation that has left would wait here for ever.
CREATE OR REPLACE FUNCTION fleet.enter_signals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM fleet.enter(split_part(o.scope, '/', 1), true) FROM idem.operations o WHERE o.id = NEW.operation_id;
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER fleet BEFORE INSERT ON idem.signals
    FOR EACH ROW WHEN (current_setting('fleet.moving', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION fleet.enter_signals();
