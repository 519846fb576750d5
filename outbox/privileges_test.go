package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

func TestPrivileges_OfTheDocsSuffice(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	suffix := fmt.Sprintf("_%08x", rand.Uint32())
	own := strings.NewReplacer("idem_call", "idem_call"+suffix, "idem_relay", "idem_relay"+suffix)
	docs, err := os.ReadFile("../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	sql := "create role idem_call; create role idem_relay; grant usage on schema idem to idem_call;"
	for line := range strings.Lines(string(docs)) {
		if strings.HasPrefix(line, "GRANT") && (strings.Contains(line, "TO idem_relay;") || strings.Contains(line, "ON idem.outbox, idem.delayed TO idem_call;")) {
			sql += line
		}
	}
	o.exec(own.Replace(sql), pgx.QueryExecModeSimpleProtocol)
	t.Cleanup(func() {
		sql := own.Replace("drop owned by idem_call, idem_relay; drop role idem_call, idem_relay")
		if _, err := o.pool.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	})
	as := func(role string) string { return o.dsn + "&options=" + url.QueryEscape("-crole="+own.Replace(role)) }
	calling := &database{t: t, dsn: o.dsn, pool: pgtest.Open(t, as("idem_call"))}
	for name, relaying := range map[string]*database{
		"session": {t: t, pool: pgtest.Open(t, as("idem_relay"))}, "lease": {t: t, pool: pgtest.Open(t, as("idem_relay"), behindPooler)},
	} {
		poison := message("a", "poison")
		poison.ID = outbox.NewID()
		calling.add(message("a", name), poison, message("b", name))
		tries := 0
		b := &broker{refuse: func(m *outbox.Message) error {
			if tries++; m.Type == "poison" || tries < 5 {
				return errRefused
			}
			return nil
		}}
		config := swift()
		config.MaxAttempts, config.Retention = 6, time.Hour
		_, stop := relaying.relay(b, config)
		o.empty()
		if err := outbox.Redrive(t.Context(), relaying.pool, outbox.Ref{Topic: "orders", ID: poison.ID}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b.mu.Lock()
		b.refuse = nil
		b.mu.Unlock()
		o.empty()
		if _, err := outbox.ReadStats(t.Context(), relaying.pool); err != nil || b.number() != 3 {
			t.Errorf("%s: %d messages were published, %v", name, b.number(), err)
		}
		stop()
	}
	for _, forbidden := range []string{"select payload from idem.outbox", "delete from idem.outbox", "update idem.outbox set payload = ''"} {
		if _, err := calling.pool.Exec(t.Context(), forbidden); err == nil {
			t.Errorf("%s: allowed", forbidden)
		}
	}
}
