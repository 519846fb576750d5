-- name: ListDeadLetters :many
-- ListDeadLetters lists dead letters in the order of their names, beginning after After. It reads
-- neither payload nor headers. An empty field of Only matches every letter.
-- @in Only LetterName, After LetterName
-- @out Letter
SELECT d.side, d.consumer, d.source, d.id, d.key, d.type, coalesce(d.sealed_by, '')::text AS sealed_by, d.class, d.reason, d.attempts,
       d.created_at, d.died_at
FROM idem.dead_letters d
WHERE (@only_side::text = '' OR d.side = @only_side)
  AND (@only_consumer::text = '' OR d.consumer = @only_consumer)
  AND (@only_source::text = '' OR d.source = @only_source)
  AND (@only_id::text = '' OR d.id = @only_id)
  AND (d.side, d.consumer, d.source, d.id) >
      (@after_side::text, @after_consumer::text, @after_source::text, @after_id::text)
ORDER BY d.side, d.consumer, d.source, d.id
LIMIT @room::int4;

-- name: ShowDeadLetter :one
-- ShowDeadLetter reads a dead letter.
-- @in Name LetterName
-- @out Letter
SELECT d.key, d.type, d.payload, coalesce(d.headers::text, '')::text AS headers,
       coalesce(d.sealed_by, '')::text AS sealed_by, d.class, d.reason, d.attempts,
       d.created_at, d.died_at
FROM idem.dead_letters d
WHERE d.side = @side AND d.consumer = @consumer
  AND d.source = @source AND d.id = @id;

-- name: TakeDeadLetter :one
-- TakeDeadLetter deletes a dead letter and returns it. The caller handles the letter in the same
-- transaction.
-- @in Name LetterName
-- @out Letter
DELETE FROM idem.dead_letters d
WHERE d.side = @side AND d.consumer = @consumer
  AND d.source = @source AND d.id = @id
RETURNING d.key, d.type, d.payload, coalesce(d.headers::text, '')::text AS headers,
          coalesce(d.sealed_by, '')::text AS sealed_by, d.class, d.reason, d.attempts,
          d.created_at, d.died_at;
