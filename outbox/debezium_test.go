package outbox_test

import (
	"bufio"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// What Debezium's outbox event router reads, by its default names: the types are those of its documentation, or hold at least
// as much. It ignores deletes, which is what a relay or a clean-up makes.
func TestTableIsOneThatDebeziumsEventRouterReads(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	m := outbox.Message{ID: outbox.NewID(), Topic: "orders", Key: "order 1", Type: "OrderPlaced", Payload: []byte(`{"id":1}`),
		Headers: map[string]string{"traceparent": parent, "tracestate": `a=1,b=\x`, "tenant": "t"}}
	untraced := outbox.Message{ID: outbox.NewID(), Topic: "orders", Headers: map[string]string{"tracestate": "of nothing"}}
	o.add(m, untraced)
	rows, _ := o.pool.Query(t.Context(), `select column_name || ' ' || data_type || ' ' || is_nullable from information_schema.columns
		where table_schema = 'idem' and table_name = 'outbox'
		  and column_name in ('id', 'aggregatetype', 'aggregateid', 'type', 'payload', 'tracingspancontext', 'headers') order by 1`)
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{"aggregateid text NO", "aggregatetype text NO", "headers jsonb YES", "id uuid NO", "payload bytea YES",
		"tracingspancontext text YES", "type text NO"}
	if diff := cmp.Diff(want, columns); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	var id, topic, key, what, trace, tenant string
	var payload []byte
	err = o.pool.QueryRow(t.Context(), `select id::varchar, aggregatetype::varchar(255), aggregateid::varchar(255), type::varchar(255), payload, tracingspancontext, headers ->> 'tenant'
		from idem.outbox where id = $1`, m.ID).Scan(&id, &topic, &key, &what, &payload, &trace, &tenant)
	if err != nil {
		t.Fatal(err)
	}
	if id != m.ID || topic != m.Topic || key != m.Key || what != m.Type || string(payload) != string(m.Payload) || tenant != "t" {
		t.Errorf("%s %s %s %s %s %s", id, topic, key, what, payload, tenant)
	}
	if diff := cmp.Diff(map[string]string{"traceparent": parent, "tracestate": `a=1,b=\x`}, properties(t, trace)); diff != "" {
		t.Errorf("(-given +read):\n%s", diff)
	}
	if n := o.count(`select count(*) from idem.outbox where tracingspancontext is null and payload is null and id = $1`, untraced.ID); n != 1 {
		t.Error("there is a trace where none was given")
	}
	// A publication needs to know a row that is deleted by its primary key.
	if n := o.count(`select count(*) from pg_class c join pg_index i on i.indrelid = c.oid and i.indisprimary
		where c.oid = any ('{idem.outbox,idem.published,idem.dead_letters,idem.relays}'::regclass[]) and c.relreplident = 'd'`); n != 4 {
		t.Errorf("%d tables have a key", n)
	}
}

// properties reads properties as java.util.Properties does, as far as they are written here.
func properties(t *testing.T, text string) map[string]string {
	t.Helper()
	read := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), "=")
		if !ok {
			t.Errorf("no property: %q", lines.Text())
		}
		read[name] = strings.ReplaceAll(value, `\\`, `\`)
	}
	return read
}
