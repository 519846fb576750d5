package command_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/cmd/idem/internal/command"
)

// acts returns the audit entries, one per line, the earliest first.
func (d *desk) acts() string {
	d.t.Helper()
	var acts string
	err := d.pool.QueryRow(d.t.Context(), `SELECT coalesce(string_agg(concat_ws('|', act, outcome, role = session_user, person, reason,
		coalesce(operation_id::text, side || '/' || consumer || '/' || source || '/' || message_id)), E'\n' ORDER BY at), '') FROM idem.audit`).Scan(&acts)
	if err != nil {
		d.t.Fatal(err)
	}
	return acts
}

func TestEachCommandThatChangesSomethingLeavesOneRowThatSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"evict --execution " + leftID + " " + left:                      "evict|processing|t|ann|INC-7|" + leftID,
		"operation retry " + parkedID:                                   "retry|running|t|ann|INC-7|" + parkedID,
		"operation retry --all --name checkout":                         "retry|running|t|ann|INC-7|" + parkedID,
		"operation cancel " + waitsID:                                   "cancel|to be undone|t|ann|INC-7|" + waitsID,
		"operation cancel --all --name checkout":                        "cancel|to be undone|t|ann|INC-7|" + parkedID,
		"operation resolve --refused no " + parkedID:                    "resolve|refused|t|ann|INC-7|" + parkedID,
		"dead redrive --side outbox " + deadOutID:                       "redrive|to be tried again|t|ann|INC-7|outbox//orders/" + deadOutID,
		"dead redrive --side inbox --consumer shipping " + twiceID:      "redrive|to be tried again|t|ann|INC-7|inbox/shipping/stripe/" + twiceID,
		"dead drop --side outbox " + deadOutID:                          "drop|deleted|t|ann|INC-7|outbox//orders/" + deadOutID,
		"dead drop --all --side outbox --class *broker.Refused":         "drop|deleted|t|ann|INC-7|outbox//orders/" + deadOutID,
		"dead drop --all --side outbox --dry-run":                       "",
		"operation retry --all --name checkout --dry-run":               "",
		"evict --dry-run --execution " + leftID + " " + left:            "",
		"operation retry --all --name no-such-definition":               "",
		"evict --execution " + placedID + " " + left:                    "",
		"operation resolve --not-happened --step elsewhere " + parkedID: "",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.keep()
			d.keepOperations()
			d.keepMessages()
			words := strings.Fields(args)
			if words[0] == "evict" {
				words = append(words[:len(words)-1], scope, left)
			}
			said := d.idem(append(words, "--yes", "--reason", "INC-7", "--person", "ann")...)
			if diff := cmp.Diff(want, d.acts()); diff != "" {
				t.Errorf("%+v:\n%s", said, diff)
			}
		})
	}
}

func TestPersonIsTheOneOfTheEnvironmentUnlessOneIsNamed(t *testing.T) {
	t.Parallel()
	for _, env := range []map[string]string{{"IDEM_PERSON": "ann", "USER": "root"}, {"USER": "ann"}} {
		d := newDesk(t)
		d.keep()
		env["DATABASE_URL"] = d.dsn
		d.call(context.Background(), func(w *command.World) { w.Getenv = func(name string) string { return env[name] } },
			"evict", scope, left, "--execution", leftID, "--yes").want(t, 0)
		if got, want := d.acts(), "evict|processing|t|ann||"+leftID; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestChangeByARoleThatCannotPutItOnRecordIsNotMade(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.keep()
	d.keepMessages()
	role := fmt.Sprintf("idem_mute_%08x", rand.Uint32())
	for _, sql := range []string{"CREATE ROLE " + role, "GRANT USAGE ON SCHEMA idem TO " + role, "GRANT ALL ON ALL TABLES IN SCHEMA idem TO " + role, "REVOKE INSERT ON idem.audit FROM " + role} {
		d.exec(sql)
	}
	t.Cleanup(func() {
		if _, err := d.pool.Exec(context.Background(), "DROP OWNED BY "+role); err == nil {
			_, _ = d.pool.Exec(context.Background(), "DROP ROLE "+role)
		}
	})
	muted := func(name string) string {
		return map[string]string{"DATABASE_URL": d.dsn + "&options=" + url.QueryEscape("-crole="+role)}[name]
	}
	for _, args := range [][]string{{"evict", scope, left, "--execution", leftID}, {"dead", "drop", "--side", "outbox", deadOutID}, {"dead", "redrive", "--side", "outbox", deadOutID}} {
		d.call(context.Background(), func(w *command.World) { w.Getenv = muted }, append(args, "--yes")...).want(t, 1, "INSERT on idem.audit")
	}
	if got := d.acts(); got != "" {
		t.Errorf("on record: %s", got)
	}
	d.idem("show", scope, left).want(t, 0)
	d.idem("dead", "show", "--side", "outbox", deadOutID).want(t, 0)
}

func TestAuditIsShownAsTheGoldenFilesHaveIt(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"audit":           "audit",
		"audit-more":      "audit --limit 2",
		"audit-since":     "audit --since 2h",
		"audit-older":     "audit --older 2d",
		"audit-act":       "audit --act redrive",
		"audit-person":    "audit --person ann@example.com",
		"audit-operation": "audit --operation " + parkedID,
		"audit-message":   "audit --message " + deadOutID,
		"audit-none":      "audit --act drop",
		"audit-invalid":   "audit --operation x",
	} {
		for kind, further := range map[string][]string{"txt": nil, "json": {"--json"}} {
			t.Run(name+"."+kind, func(t *testing.T) {
				t.Parallel()
				d := newDesk(t)
				d.exec(`INSERT INTO idem.audit (at, id, act, outcome, role, person, reason, operation_id, step, scope, key, side, consumer, source, message_id) VALUES
					(now() - interval '1 h 30 min 30 s', gen_random_uuid(), 'evict', 'processing', 'idem_oncall', 'ann@example.com', E'INC-7: cleaned \x1b[2J up', $1, '', 'tenant-1', 'ac33…(36)', '', '', '', ''),
					(now() - interval '1 day 30 min 30 s', gen_random_uuid(), 'resolve', 'happened', 'idem_oncall', '', 'the bank has it', $2, 'charge', 'tenant-1', '8a11…(36)', '', '', '', ''),
					(now() - interval '3 days 30 min 30 s', gen_random_uuid(), 'redrive', 'to be tried again', 'orders', 'ann@example.com', '', NULL, '', '', '', 'inbox', 'billing', 'stripe', 'evt_2P'),
					(now() - interval '4 days 30 min 30 s', gen_random_uuid(), 'redrive', 'to be tried again', 'orders', '', '', NULL, '', '', '', 'outbox', '', 'orders', $3)`,
					leftID, parkedID, deadOutID)
				got := d.idem(append(strings.Fields(args), further...)...)
				compareGolden(t, name+"."+kind, fmt.Sprintf("%s%sexit %d\n", got.stdout, got.stderr, got.code))
			})
		}
	}
}
