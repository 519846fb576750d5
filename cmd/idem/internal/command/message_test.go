package command_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/seal"
)

func TestForget_RefusesARunningRelay(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keepMessages()
	d.exec(`INSERT INTO idem.leases (instance, expires_at) VALUES (990001, now() + interval '1 hour')`)
	d.exec(`INSERT INTO idem.relays (relay, lane, instance, since, generation) VALUES ('invoices', 0, 990001, now(), 1)`)
	d.idem("outbox", "forget", "invoices", "--yes").want(t, 5, "nothing was changed", "stop it first")
	d.exec(`DELETE FROM idem.leases`)
	d.idem("outbox", "forget", "invoices", "--yes").want(t, 0, "released the topics")
	d.idem("outbox", "forget", "invoices", "--yes").want(t, 0) // idempotent
}

func TestDead_ShowsAndRedrivesASealedLetter(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	secret := []byte(strings.Repeat("s", 32))
	sealer := seal.New(seal.Keys{Primary: "2026-11", Secrets: map[string][]byte{"2026-11": secret}})
	name := db.LetterName{Side: deadletter.Outbox, Source: "orders", ID: waitingID}
	sealed, err := db.Contents{Payload: []byte("the payload"), Headers: `{"trace": "the header"}`}.Seal(sealer, name)
	if err != nil {
		t.Fatal(err)
	}
	d.exec(`INSERT INTO idem.dead_letters (side, consumer, source, id, key, type, payload, headers, sealed_by, class, reason, attempts, created_at, died_at)
		VALUES ('outbox', '', 'orders', $1, 'k', '', $2, nullif($3, '')::jsonb, $4, 'c', 'r', 1, now(), now())`, waitingID, sealed.Payload, sealed.Headers, sealed.SealedBy)
	with := func(keys string, args ...string) output {
		t.Helper()
		return d.withKeys(keys, append([]string{"dead"}, args...)...)
	}
	keys := "2026-11=" + base64.StdEncoding.EncodeToString(secret)
	other := "2026-11=" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("o", 32)))
	with("", "show", waitingID).want(t, 0, "sealed with", "2026-11", "shown only with --reveal")
	with("", "show", waitingID, "--reveal").want(t, 1, `sealed with the key "2026-11"`, "--seal-keys")
	with(other, "show", waitingID, "--reveal").want(t, 1, "does not open")
	with(keys, "show", waitingID, "--reveal").want(t, 0, "the payload", "trace: the header")
	with(keys, "show", waitingID, "--reveal", "--json").want(t, 0, `"payload_text": "the payload"`)
	with("", "redrive", waitingID, "--yes").want(t, 1, `sealed with the key "2026-11"`)
	with(keys, "redrive", waitingID, "--yes").want(t, 0, "redriven: the dead letter ")
	d.idem("outbox", "list").want(t, 0, waitingID, "waiting")
	d.idem("dead", "list").want(t, 0, "no dead letters")
}

// A failing row in idem.inbox would block the later messages of its key.
func TestDeadDrop_EndsARedriveThatIsNotHandledYet(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	message := inbox.Message{Source: "stripe", ID: "evt_1", Key: "a", Payload: []byte("the payload")}
	outcome, err := inbox.Handle(t.Context(), d.pool, "billing", message, func(pgx.Tx) error { return errors.New("refused") }, inbox.WithMaxAttempts(1))
	if err != nil || outcome.State != inbox.Dead {
		t.Fatal(outcome, err)
	}
	d.idem("dead", "redrive", "evt_1", "--yes").want(t, 0, "redriven: the dead letter ")
	d.idem("dead", "drop", "evt_1", "--yes").want(t, 0, "deleted the dead letter ")
	d.idem("inbox", "list").want(t, 0, "no message fails")
	outcome, err = inbox.Handle(t.Context(), d.pool, "billing", message, func(pgx.Tx) error { return nil })
	if err != nil || outcome.State != inbox.Dead {
		t.Error(outcome, err)
	}
}
