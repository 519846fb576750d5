package command_test

import "github.com/idem-go/idem"

// Names of the records that keep inserts.
const (
	scope     = "tenant-1/POST %2Forders"
	placed    = "7f3c9a52-0d1e-4b6a-9a51-2f1be0c7d111"
	declined  = "8a11c0de-5f00-4d2c-8c3b-6f3c9a520d1e"
	forgotten = "9b22d1ef-6a11-4e3d-9d4c-7a4dab631e2f"
	left      = "ac33e2f0-7b22-4f4e-ae5d-8b5ebc742f30"
	brief     = "short"

	placedID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"
	leftID   = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a13"

	order = `{"sku": "teapot", "client_time": 1}`
)

// keep inserts a record of every kind. The displayed ages do not change within half an hour.
func (d *harness) keep() {
	d.t.Helper()
	hash, err := idem.HashJSON([]byte(order), idem.Without("/client_time"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, r := range []struct {
		scope, key, id, age, ttl, state string
		status                          any
		header, body                    any
	}{
		{scope, placed, placedID, "1 hour", "3 days", "completed", 201, `{"Content-Type": ["application/json"], "X-Order": ["1", "2"]}`, `{"order":1,"note":"secret"}`},
		{scope, declined, "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a11", "2 hours", "3 days", "failed", 402, nil, "declined\x1b[31m"},
		{scope, forgotten, "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a12", "9 days", "3 days", "completed", 200, nil, nil},
		{scope, left, leftID, "1 day", "3 days", "processing", nil, nil, nil},
		{"tenant-2/re\u202efund", brief, "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a14", "5 hours", "3 days", "completed", 200, nil, "ok"},
	} {
		d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, header, body)
			VALUES ($1, $2, $3, $4, now() - interval '30 min' - $5::interval, now() + interval '30 min' - $5::interval + $6::interval,
				$7, $8, CASE WHEN $7 <> 'processing' THEN now() - $5::interval END, $9::text::jsonb, convert_to($10::text, 'UTF8'))`,
			r.scope, r.key, hash[:], r.id, r.age, r.ttl, r.state, r.status, r.header, r.body)
	}
}

// Ids of the messages that keepMessages inserts.
const (
	waitingID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c10"
	failingID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c11"
	behindID  = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c12"
	deadOutID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c13"
	deadInID  = "evt_1P\x1b[2J"
	twiceID   = "evt_2P"
	soonID    = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c14"
	laterID   = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c15"
)

// keepMessages inserts messages of every kind, all a few hours old.
func (d *harness) keepMessages() {
	d.t.Helper()
	const added = `now() - interval '3 hours 30 min'`
	for _, m := range []struct {
		id, topic, key        string
		held                  bool
		attempts, next, class any
	}{
		{failingID, "orders", "customer-of-Ada-Lovelace", true, 3, "10 h 30 min 30 s", "*broker.Refused"},
		{behindID, "orders", "customer-of-Ada-Lovelace", true, nil, nil, nil},
		{waitingID, "invoices\x1b[2J", "", false, nil, nil, nil},
	} {
		d.exec(`INSERT INTO idem.outbox (created_at, id, held, attempts, next_at, aggregatetype, aggregateid, type, payload, class, reason)
			VALUES (`+added+`, $1, $2, $3, now() + $4::interval, $5, $6, 'OrderPlaced', 'the secret', $7, $7)`, m.id, m.held, m.attempts, m.next, m.topic, m.key, m.class)
	}
	for _, m := range []struct {
		consumer, id, key              string
		attempts, begun, hindered, due any
	}{
		{"billing", "evt_3P\x1b[2J", "customer-of-Ada-Lovelace", 3, nil, 7, "10 h 30 min 30 s"},
		{"billing", "evt_4P", "", 1, nil, nil, "-1 min"},
		{"shipping", "evt_5P", "customer-of-Ada-Lovelace", 2, true, nil, nil},
	} {
		d.exec(`INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at, attempts, begun, retry_at, key, hindered)
			VALUES ($1, 'stripe', $2, '', 'failing', `+added+`, 'infinity', $4, $5, now() + $6::interval, nullif($3, ''), $7)`, m.consumer, m.id, m.key, m.attempts, m.begun, m.due, m.hindered)
	}
	d.exec(`INSERT INTO idem.relay_topics (relay, topics, generation, since) VALUES ('invoices', '{invoices}', 1, now())`)
	d.exec(`INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at) VALUES ('quiet', 'stripe', 'evt_6P', '', 'handled', now(), 'infinity')`)
	for _, l := range []struct{ side, consumer, source, id, key, class, dead string }{
		{"outbox", "", "orders", deadOutID, "customer-of-Grace-Hopper", "*broker.Refused", "2 h 30 min"},
		{"inbox", "billing", "stripe", deadInID, "customer-of-Ada-Lovelace", "40001", "2 days 3 h 30 min"},
		{"inbox", "billing", "stripe", twiceID, "", "*errors.Declined", "2 days 3 h 30 min"},
		{"inbox", "shipping", "stripe", twiceID, "", "*errors.Declined", "2 days 3 h 30 min"},
	} {
		d.exec(`INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, payload, headers, class, reason, attempts, created_at, died_at)
			VALUES ($1, $2, $3, $4, $5, 'OrderPlaced', 'the secret', '{"trace": "the header"}', $6, E'no room\u202e for it', 10, `+added+` - interval '3 days', now() - $7::interval)`,
			l.side, l.consumer, l.source, l.id, l.key, l.class, l.dead)
	}
	for _, m := range []struct{ id, hours string }{{laterID, "30"}, {soonID, "10"}} {
		d.exec(`INSERT INTO idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
			VALUES (now() + $1::interval, `+added+`, $2, 'orders', '', 'OrderOverdue')`, m.hours+" h 30 min", m.id)
	}
}

// Ids of the operations that keepOperations inserts.
const (
	doneID   = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b10"
	parkedID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b11"
	waitsID  = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b12"
	undoneID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2b13"
)

// keepOperations inserts an operation of every kind, all two days and a few hours old.
func (d *harness) keepOperations() {
	d.t.Helper()
	const begun = `now() - interval '2 days 3 hours 30 min'`
	for _, o := range []struct {
		id, key, name, state, step string
		seq, attempts              int
		undoing                    bool
		wake, ended                any
	}{
		{doneID, placed, "checkout", "completed", "", 0, 0, false, "0", "2.5 s"},
		{parkedID, declined, "checkout", "parked", "charge", 2, 1, false, "0", nil},
		{waitsID, forgotten, "refund", "running", "approval", 2, 0, false, "10 days", nil},
		{undoneID, left, "checkout\x1b[2J", "failed", "", 0, 0, true, "0", "3 s"},
	} {
		d.exec(`INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, input, epoch, state, undoing, step, seq, kind, since, wake_at, tries, attempts, ended_at)
			VALUES ($1, $2, $3, '', $4, 86400000000, `+begun+`, '{"sku":"teapot"}', 1, $5, $6, $7, $8, CASE $7 WHEN 'charge' THEN 'call' WHEN 'approval' THEN 'await' ELSE '' END, `+begun+` + interval '120 ms', `+begun+` + $9::interval, 0, $10, `+begun+` + $11::interval)`,
			o.id, scope, o.key, o.name, o.state, o.undoing, o.step, o.seq, o.wake, o.attempts, o.ended)
	}
	d.exec(`UPDATE idem.operations SET policy = 'once', undos = 1, reason = 'call_in_doubt', reason_step = step, reason_text = 'step "charge" may have happened',
		error_step = step, error_attempt = 3, error_text = convert_to('no answer from the bank' || chr(27), 'UTF8'), error_at = created_at + interval '1 s' WHERE id = $1`, parkedID)
	for _, s := range []struct {
		id            string
		seq           int
		after         string
		kind, name    string
		outcome       string
		value, dueDay any
		undos         any
	}{
		{doneID, 1, "120 ms", "tx", "reserve", "done", `{"order":17}`, nil, 1},
		{doneID, 2, "2.5 s", "call", "charge", "done", `{"charge":"ch_secret"}`, nil, 1},
		{doneID, 3, "2.5 s", "tx", "confirm", "done", `null`, nil, nil},
		{parkedID, 1, "120 ms", "tx", "reserve", "done", `{"order":18}`, nil, 1},
		{waitsID, 1, "120 ms", "tx", "ask", "done", `null`, nil, nil},
		{waitsID, 2, "120 ms", "await", "approval", "waiting", nil, "10 days", nil},
		{undoneID, 1, "120 ms", "tx", "reserve\x1b[31m", "done", `{"order":19}`, nil, 1},
		{undoneID, 2, "1 s", "tx", "note", "done", `null`, nil, nil},
		{undoneID, 3, "1.2 s", "call", "charge", "failed", `{"text":"card declined"}`, nil, 1},
		{undoneID, 4, "3 s", "end", "error", "failed", `{"text":"card declined"}`, nil, nil},
		{undoneID, 5, "3 s", "undo", "reserve\x1b[31m", "done", nil, nil, nil},
	} {
		d.exec(`INSERT INTO idem.steps (operation_id, seq, kind, name, due_at, recorded_at, outcome, value, undos)
			SELECT id, $2, $3, $4, created_at + $5::interval, created_at + $6::interval, $7, convert_to($8, 'UTF8'), $9 FROM idem.operations WHERE id = $1`,
			s.id, s.seq, s.kind, s.name, s.dueDay, s.after, s.outcome, s.value, s.undos)
	}
	d.exec(`INSERT INTO idem.signals SELECT id, 'approval', created_at + interval '1 h', '"yes"', false FROM idem.operations WHERE id = $1`, waitsID)
}

// keepActs inserts what people did.
func (d *harness) keepActs() {
	d.t.Helper()
	d.exec(`INSERT INTO idem.audit (at, id, act, outcome, role, person, reason, operation_id, step, scope, key, side, consumer, source, message_id) VALUES
		(now() - interval '1 h 30 min 30 s', gen_random_uuid(), 'evict', 'processing', 'idem_oncall', 'ann@example.com', E'INC-7: cleaned \x1b[2J up', $1, '', 'tenant-1', 'ac33…(36)', '', '', '', ''),
		(now() - interval '1 day 30 min 30 s', gen_random_uuid(), 'resolve', 'happened', 'idem_oncall', '', 'the bank has it', $2, 'charge', 'tenant-1', '8a11…(36)', '', '', '', ''),
		(now() - interval '3 days 30 min 30 s', gen_random_uuid(), 'redrive', 'to be tried again', 'orders', 'ann@example.com', '', NULL, '', '', '', 'inbox', 'billing', 'stripe', 'evt_2P'),
		(now() - interval '4 days 30 min 30 s', gen_random_uuid(), 'redrive', 'to be tried again', 'orders', '', '', NULL, '', '', '', 'outbox', '', 'orders', $3)`,
		leftID, parkedID, deadOutID)
}

// keepAll replaces the contents of all tables. For a few rows, DELETE is faster than TRUNCATE.
func (d *harness) keepAll() {
	d.t.Helper()
	for _, table := range []string{"records", "operations", "steps", "signals", "outbox", "delayed", "inbox", "dead_letters", "relay_topics", "audit"} {
		d.exec("DELETE FROM idem." + table)
	}
	d.exec("SELECT setval('idem.outbox_seq_seq', 1, false), setval('idem.delayed_seq_seq', 1, false)")
	d.keep()
	d.keepOperations()
	d.keepMessages()
	d.keepActs()
}
