package command_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/command"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/seal"
)

// IDs of the messages of keepMessages.
const (
	waitingID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c10"
	failingID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c11"
	behindID  = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c12"
	deadOutID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2c13"
	deadInID  = "evt_1P\x1b[2J"
	twiceID   = "evt_2P"
)

// keepMessages stores messages of every kind, all of them some hours old.
func (d *desk) keepMessages() {
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
}

func TestMessagesAreShownAsTheGoldenFilesHaveIt(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"outbox-stats":         "outbox stats",
		"outbox-list":          "outbox list",
		"outbox-list-more":     "outbox list --limit 2 --full",
		"outbox-list-after":    "outbox list --after 2",
		"outbox-list-held":     "outbox list --state held --topic orders --older 1h",
		"outbox-list-none":     "outbox list --topic nothing",
		"outbox-forget":        "outbox forget invoices --yes",
		"outbox-forget-none":   "outbox forget nothing --yes",
		"outbox-forget-asked":  "outbox forget invoices",
		"inbox-stats":          "inbox stats",
		"inbox-list":           "inbox list",
		"inbox-list-more":      "inbox list --limit 1 --full",
		"inbox-list-filtered":  "inbox list --consumer shipping --source stripe",
		"inbox-list-none":      "inbox list --consumer unknown",
		"dead-list":            "dead list",
		"dead-list-more":       "dead list --limit 1 --full",
		"dead-list-after":      "dead list --after inbox/billing/stripe/evt_2P",
		"dead-list-filtered":   "dead list --side inbox --consumer billing --source stripe --class 40001 --older 1d",
		"dead-list-topic":      "dead list --topic orders",
		"dead-list-none":       "dead list --consumer unknown",
		"dead-show":            "dead show " + deadOutID,
		"dead-show-reveal":     "dead show " + deadInID + " --reveal --full",
		"dead-show-several":    "dead show " + twiceID,
		"dead-show-none":       "dead show " + waitingID,
		"dead-redrive-dry-run": "dead redrive --all --side inbox --dry-run",
		"dead-redrive-unasked": "dead redrive " + deadOutID,
		"dead-redrive":         "dead redrive " + deadOutID + " --yes",
		"dead-redrive-all":     "dead redrive --all --side inbox --consumer billing --yes",
		"dead-drop-dry-run":    "dead drop " + twiceID + " --consumer billing --dry-run",
		"dead-drop-unasked":    "dead drop --all --older 1d",
		"dead-drop":            "dead drop --all --older 1d --limit 2 --yes",
		"dead-drop-none":       "dead drop --all --older 9d --yes",
		"dead-drop-unfiltered": "dead drop --all --yes",
	} {
		for kind, further := range map[string][]string{"txt": nil, "json": {"--json"}} {
			t.Run(name+"."+kind, func(t *testing.T) {
				t.Parallel()
				d := newDesk(t)
				d.keepMessages()
				got := d.idem(append(strings.Fields(args), further...)...)
				compareGolden(t, name+"."+kind, fmt.Sprintf("%s%sexit %d\n", got.stdout, got.stderr, got.code))
			})
		}
	}
}

func TestRelayThatRunsIsNotForgotten(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepMessages()
	d.exec(`INSERT INTO idem.leases (instance, expires_at) VALUES (990001, now() + interval '1 hour')`)
	d.exec(`INSERT INTO idem.relays (relay, lane, instance, since, generation) VALUES ('invoices', 0, 990001, now(), 1)`)
	d.idem("outbox", "forget", "invoices", "--yes").want(t, 5, "nothing was changed", "stop it first")
	d.exec(`DELETE FROM idem.leases`)
	d.idem("outbox", "forget", "invoices", "--yes").want(t, 0, "forgotten")
	d.idem("outbox", "forget", "invoices", "--yes").want(t, 0) // a second forget changes nothing
}

func TestKeysAndPayloadsOfMessagesAreNotShownUnlessAskedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepMessages()
	for _, args := range []string{"outbox list", "outbox stats", "inbox list", "inbox stats", "dead list", "dead show " + deadOutID, "dead redrive --all --older 1s --dry-run", "dead drop " + deadOutID} {
		for _, further := range [][]string{nil, {"--json"}} {
			got := d.idem(append(strings.Fields(args), further...)...)
			for _, secret := range []string{"Ada", "Grace", "the secret", base64.StdEncoding.EncodeToString([]byte("the secret")), "the header", "\x1b", "\u202e"} {
				if strings.Contains(got.stdout+got.stderr, secret) {
					if secret == "\u202e" && further != nil {
						continue // JSON output is for programs
					}
					t.Errorf("%q shows %q:\n%s", args, secret, got.stdout)
				}
			}
		}
	}
}

// letters returns the number of dead letters.
func (d *desk) letters() (n int) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), "SELECT count(*) FROM idem.dead_letters WHERE redrive_at IS NULL").Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

func TestDeadLettersAreLeftAloneUntilSomebodyAgrees(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepMessages()
	for _, args := range []string{"dead redrive " + deadOutID, "dead drop " + deadOutID, "dead redrive --all --side inbox", "dead drop --all --side inbox"} {
		for _, answer := range []string{"", "n\n", "yes please\n"} {
			d.call(context.Background(), typed(answer), strings.Fields(args)...).want(t, 5, "nothing was changed")
		}
		d.idem(strings.Fields(args)...).want(t, 5, "--yes")
		d.idem(strings.Fields(args+" --yes --dry-run")...).want(t, 0, "it ")
	}
	for _, args := range []string{"dead drop --all --yes", "dead drop --yes", "dead drop --all " + deadOutID, "dead redrive --all --limit 5 --yes", "dead drop --all --side inbox --limit 0",
		"dead list --limit 0", "dead list --after x", "outbox list --limit 10001", "dead drop " + twiceID + " --yes"} {
		d.idem(strings.Fields(args)...).want(t, 2)
	}
	if n := d.letters(); n != 4 {
		t.Fatalf("%d of 4 are left", n)
	}
	d.call(context.Background(), typed("y\n"), "dead", "drop", deadOutID).want(t, 0, "Go on?", "1 deleted")
	d.idem("dead", "drop", deadOutID, "--yes").want(t, 4, "no dead letter")
}

// The message may be redriven and dead-lettered again while the user decides.
func TestOnlyTheDeadLetterThatWasLookedAtIsDropped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keepMessages()
	change := func(w *command.World) {
		typed("")(w)
		w.Stdin = readerFunc(func(p []byte) (int, error) {
			d.exec("UPDATE idem.dead_letters SET died_at = now() WHERE side = 'outbox'")
			return copy(p, "y\n"), nil
		})
	}
	d.call(context.Background(), change, "dead", "drop", deadOutID).want(t, 4, "nothing was done")
	if n := d.letters(); n != 4 {
		t.Fatalf("%d of 4 are left", n)
	}
}

// A real message is dead-lettered and goes back to the outbox, with a sealed payload.
func TestSealedDeadLetterOfTheOutboxIsShownAndGoesBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	secret := []byte(strings.Repeat("s", 32))
	sealer := seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}})
	err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		return outbox.Add(t.Context(), tx, outbox.Message{ID: waitingID, Topic: "orders", Key: "k", Payload: []byte("the payload"), Headers: map[string]string{"trace": "the header"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	bury(t, d.pool, sealer)
	with := func(keys string, args ...string) said {
		t.Helper()
		return d.call(context.Background(), func(w *command.World) {
			w.Getenv = func(name string) string {
				return map[string]string{"DATABASE_URL": d.dsn, "IDEM_SEAL_KEYS": keys}[name]
			}
		}, append([]string{"dead"}, args...)...)
	}
	keys := "2026-11=" + base64.StdEncoding.EncodeToString(secret)
	other := "2026-11=" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("o", 32)))
	with("", "show", waitingID).want(t, 0, "sealed with", "2026-11", "not shown without --reveal")
	with("", "show", waitingID, "--reveal").want(t, 1, `sealed with the key "2026-11"`, "--seal-keys")
	with(other, "show", waitingID, "--reveal").want(t, 1, "does not open")
	with(keys, "show", waitingID, "--reveal").want(t, 0, "the payload", "trace: the header")
	with(keys, "show", waitingID, "--reveal", "--json").want(t, 0, `"payload_text": "the payload"`)
	with("", "redrive", waitingID, "--yes").want(t, 1, `sealed with the key "2026-11"`)
	with(keys, "redrive", waitingID, "--yes").want(t, 0, "1 to be tried again")
	d.idem("outbox", "list").want(t, 0, waitingID, "waiting")
	d.idem("dead", "list").want(t, 0, "no dead letters")
}

// bury runs a relay with a broker that refuses everything, until the message is dead-lettered.
func bury(t *testing.T, pool *pgxpool.Pool, sealer *seal.Sealer) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	refuse := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		failed := map[string]error{}
		for _, m := range messages {
			failed[m.ID] = errors.New("refused")
		}
		return &outbox.PublishError{Failed: failed}
	})
	dead := make(chan struct{})
	relay := outbox.NewRelay(pool, refuse, outbox.RelayConfig{MaxAttempts: 1, Sealer: sealer, OnDead: func(outbox.DeadLetter) { close(dead) }})
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	<-dead
	for { // the relay reports the message before it commits
		letters, err := deadletter.List(t.Context(), pool, deadletter.Name{}, db.LetterName{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(letters) > 0 {
			break
		}
	}
	stop()
	<-ended
}

// The row of the inbox would otherwise block its key.
func TestDeadDrop_EndsARedriveThatIsNotHandledYet(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	message := inbox.Message{Source: "stripe", ID: "evt_1", Key: "a", Payload: []byte("the payload")}
	outcome, err := inbox.Handle(t.Context(), d.pool, "billing", message, func(pgx.Tx) error { return errors.New("refused") }, inbox.WithMaxAttempts(1))
	if err != nil || outcome.State != inbox.Dead {
		t.Fatal(outcome, err)
	}
	d.idem("dead", "redrive", "evt_1", "--yes").want(t, 0, "1 to be tried again")
	d.idem("dead", "drop", "evt_1", "--yes").want(t, 0, "1 deleted")
	d.idem("inbox", "list").want(t, 0, "nothing fails")
	outcome, err = inbox.Handle(t.Context(), d.pool, "billing", message, func(pgx.Tx) error { return nil })
	if err != nil || outcome.State != inbox.Dead {
		t.Error(outcome, err)
	}
}

func TestSealedDeadLetterOfTheInboxIsShownAndHandledAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	secret := []byte(strings.Repeat("s", 32))
	sealed := inbox.WithSealer(seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}}))
	message := inbox.Message{Source: "stripe", ID: "evt_1", Payload: []byte("the payload")}
	outcome, err := inbox.Handle(t.Context(), d.pool, "billing", message,
		func(pgx.Tx) error { return errors.New("refused") }, sealed, inbox.WithMaxAttempts(1))
	if err != nil || outcome.State != inbox.Dead {
		t.Fatal(outcome, err)
	}
	keys := func(w *command.World) {
		w.Getenv = func(name string) string {
			return map[string]string{"DATABASE_URL": d.dsn, "IDEM_SEAL_KEYS": "2026-11=" + base64.StdEncoding.EncodeToString(secret)}[name]
		}
	}
	d.idem("dead", "show", "evt_1", "--reveal").want(t, 1, `sealed with the key "2026-11"`)
	d.call(context.Background(), keys, "dead", "show", "evt_1", "--reveal").want(t, 0, "the payload")
	d.idem("dead", "redrive", "evt_1", "--yes").want(t, 0, "1 to be tried again")
	d.idem("dead", "list").want(t, 0, "to be tried again")
	messages, outcomes, err := inbox.HandleRedrives(t.Context(), d.pool, "billing", 10, func(pgx.Tx, inbox.Message) error { return nil }, sealed)
	if err != nil || len(messages) != 1 || outcomes[0].State != inbox.Done {
		t.Fatal(messages, outcomes, err)
	}
	d.idem("dead", "list").want(t, 0, "no dead letters")
}

func TestDelayedMessagesAreListedApartInTheOrderInWhichTheyAreDue(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for hours, id := range map[string]string{"30": waitingID, "10": failingID} {
		d.exec(`INSERT INTO idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type)
			VALUES (now() + $1::interval, now() - interval '3 hours', $2, 'orders', '', 'OrderOverdue')`, hours+" h 30 min", id)
	}
	if got := d.idem("outbox", "list"); !strings.Contains(got.stdout, "no messages") {
		t.Errorf("%+v", got)
	}
	got := d.idem("outbox", "list", "--state", "delayed", "--limit", "1")
	if !strings.Contains(got.stdout, failingID) || strings.Contains(got.stdout, waitingID) || !strings.Contains(got.stdout, "in 10 h") || !strings.Contains(got.stdout, "there are more") {
		t.Errorf("%+v", got)
	}
	if got := d.idem("outbox", "stats"); !strings.Contains(got.stdout, "delayed       2 (the next is due in 10 h") {
		t.Errorf("%+v", got)
	}
	if got := d.idem("outbox", "list", "--state", "delayed", "--after", "1"); got.code != 2 {
		t.Errorf("%+v", got)
	}
}
