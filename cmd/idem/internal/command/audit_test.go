package command_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// acts returns the rows of idem.audit, one on a line, the earliest first.
func (d *harness) acts() string {
	d.t.Helper()
	var acts string
	err := d.pool.QueryRow(d.t.Context(), `SELECT coalesce(string_agg(concat_ws('|', act, outcome, role = session_user, person, reason,
		coalesce(operation_id::text, side || '/' || consumer || '/' || source || '/' || message_id)), E'\n' ORDER BY at), '') FROM idem.audit`).Scan(&acts)
	if err != nil {
		d.t.Fatal(err)
	}
	return acts
}

func TestChange_LeavesOneRowInAudit(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	for args, want := range map[string]string{
		"evict SCOPE " + left + " --execution " + leftID:                "evict|processing|t|ann|INC-7|" + leftID,
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
		"evict SCOPE " + left + " --execution " + leftID + " --dry-run": "",
		"operation retry --all --name no-such-definition":               "",
		"evict SCOPE " + left + " --execution " + placedID:              "",
		"operation resolve --not-happened --step elsewhere " + parkedID: "",
	} {
		d.keepAll()
		d.exec("DELETE FROM idem.audit")
		words := d.line(args)
		got := d.idem(append(words, "--yes", "--reason", "INC-7", "--person", "ann")...)
		if diff := cmp.Diff(want, d.acts()); diff != "" {
			t.Errorf("%s: %+v:\n%s", args, got, diff)
		}
	}
}

func TestPerson_ComesFromFlagOrEnvironment(t *testing.T) {
	t.Parallel()
	for _, env := range []map[string]string{{"IDEM_PERSON": "ann", "USER": "root"}, {"USER": "ann"}} {
		d := newHarness(t)
		d.keep()
		d.with(env, "evict", scope, left, "--execution", leftID, "--yes").want(t, 0)
		if got, want := d.acts(), "evict|processing|t|ann||"+leftID; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestChange_NeedsThePrivilegeToWriteAudit(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
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
	muted := map[string]string{"DATABASE_URL": d.dsn + "&options=" + url.QueryEscape("-crole="+role)}
	for _, args := range [][]string{{"evict", scope, left, "--execution", leftID}, {"dead", "drop", "--side", "outbox", deadOutID}, {"dead", "redrive", "--side", "outbox", deadOutID}} {
		d.with(muted, append(args, "--yes")...).want(t, 1, "INSERT on idem.audit")
	}
	if got := d.acts(); got != "" {
		t.Errorf("recorded: %s", got)
	}
	d.idem("show", scope, left).want(t, 0)
	d.idem("dead", "show", "--side", "outbox", deadOutID).want(t, 0)
}
