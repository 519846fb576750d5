-- name: NoteAct :exec
-- NoteAct stores a manual action in idem.audit. It belongs in the transaction of the action.
-- @in Letter LetterName
-- @pgx
INSERT INTO idem.audit (at, id, act, outcome, role, person, reason, operation_id, step, scope, key, side, consumer, source, message_id)
VALUES (clock_timestamp(), gen_random_uuid(), @act, @outcome,
        session_user::text, @person, @reason,
        (sqlc.narg('operation_id')::text)::uuid, @step, @scope, @key::text,
        @side::text, @consumer::text, @source::text, @message_id::text);
