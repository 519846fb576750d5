WITH made AS (SELECT gen_random_uuid() AS id, n FROM generate_series(1, $2::int) n),
r AS (INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, header, body)
    SELECT $1::text || '/POST %2Forders', 'filled-' || n, sha256(n::text::bytea), id, now(), now() + interval '1 day', 'completed', 201, now(),
           '{"Content-Type":["text/plain"]}', repeat('b', 200)::bytea FROM made),
o AS (INSERT INTO orders (tenant, id, customer, number, request, cents) SELECT $1, id, 'filled', n, 'filled-' || n, 1 FROM made),
i AS (INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at)
    SELECT $1 || '/billing', 'orders', id::text, sha256(n::text::bytea), 'handled', now(), now() + interval '7 days' FROM made),
p AS (INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, ended_at)
    SELECT id, $1 || '/POST %2Forders', 'filled-' || n, sha256(n::text::bytea), 'filled', 86400000000, now(), 1, 'completed', false, '', 2,
           now(), now(), 0, 0, now() FROM made WHERE n % 10 = 0)
INSERT INTO idem.steps (operation_id, seq, kind, name, recorded_at, outcome, value)
SELECT id, s, 'call', 'charge', now(), 'done', '"x"' FROM made, generate_series(1, 2) s WHERE n % 10 = 0
