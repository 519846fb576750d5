-- name: NoteAct :exec
-- NoteAct puts on record what a person did. It belongs in the transaction of the act.
INSERT INTO idem.audit (at, id, act, outcome, role, person, reason, operation_id, step, scope, key, side, consumer, source, message_id)
VALUES (pg_catalog.clock_timestamp(), pg_catalog.gen_random_uuid(), @act::pg_catalog.text, @outcome::pg_catalog.text,
        session_user::pg_catalog.text, @person::pg_catalog.text, @reason::pg_catalog.text,
        (sqlc.narg('operation_id')::pg_catalog.text)::pg_catalog.uuid, @step::pg_catalog.text, @scope::pg_catalog.text, @key::pg_catalog.text,
        @side::pg_catalog.text, @consumer::pg_catalog.text, @source::pg_catalog.text, @message_id::pg_catalog.text);
