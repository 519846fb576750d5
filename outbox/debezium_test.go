package outbox_test

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// The columns have the names that the event router reads by default, and types that hold at least
// what its documentation requires. The router ignores deletions.
func TestDebezium_ReadsTheTable(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
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
	// A publication identifies a deleted row by its primary key.
	if n := o.count(`select count(*) from pg_class c join pg_index i on i.indrelid = c.oid and i.indisprimary
		where c.oid = any ('{idem.outbox,idem.published,idem.dead_letters,idem.relays}'::regclass[]) and c.relreplident = 'd'`); n != 4 {
		t.Errorf("%d tables have a key", n)
	}
}

// properties reads a properties file as java.util.Properties does, without the syntax that Add
// never writes.
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

// The test does not run Debezium. It reads the log with the plugin, slot and publication of the
// documented configuration, and applies the rules of that configuration to each change.
func TestDebezium_ReadsTheLog(t *testing.T) {
	t.Parallel()
	docs, config := debeziumDocs(t)
	o := &database{t: t}
	o.dsn = pgtest.Server(t, "wal_level=logical").DSN()
	if err := schema.UpAt(t.Context(), o.dsn); err != nil {
		t.Fatal(err)
	}
	o.pool = pgtest.Open(t, o.dsn)
	publication := regexp.MustCompile("`(CREATE PUBLICATION [^`]*)`").FindStringSubmatch(docs)
	if publication == nil {
		t.Fatal("the docs have no publication")
	}
	o.exec(publication[1])
	o.exec(`select pg_create_logical_replication_slot($1, $2)`, config["slot.name"], config["plugin.name"])

	late := outbox.Message{ID: outbox.NewID(), Topic: "orders", Key: "order 1", Type: "OrderPlaced", Payload: []byte("{\"id\":\x001}\xff"), Headers: map[string]string{"tenant": "t"}}
	soon := outbox.Message{ID: outbox.NewID(), Topic: "invoices"}
	never := outbox.Message{ID: outbox.NewID(), Topic: "orders", Key: "order 2", Type: "OrderPlaced"}
	tx, err := o.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if err := outbox.Add(t.Context(), tx, late); err != nil {
		t.Fatal(err)
	}
	gone, err := o.pool.Begin(t.Context())
	if err == nil {
		err = errors.Join(outbox.Add(t.Context(), gone, never), gone.Rollback(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	o.add(soon)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.exec(`delete from idem.outbox`) // as the deletion of old rows does

	rows, _ := o.pool.Query(t.Context(), `select data from pg_logical_slot_get_binary_changes($1, null, null, 'proto_version', '1', 'publication_names', $2)`,
		config["slot.name"], config["publication.name"])
	router := eventRouter{t: t, config: config}
	for rows.Next() {
		var change []byte
		if err := rows.Scan(&change); err != nil {
			t.Fatal(err)
		}
		router.take(change)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]outbox.Message{soon, late}, router.routed); diff != "" {
		t.Errorf("(-committed, in that order +read):\n%s", diff)
	}
}

// debeziumDocs returns the page about Debezium and its configuration.
func debeziumDocs(t *testing.T) (page string, config map[string]string) {
	t.Helper()
	docs, err := os.ReadFile("../docs/debezium.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(docs), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	var connector struct{ Config map[string]string }
	if err := json.Unmarshal([]byte(block), &connector); err != nil {
		t.Fatal(err)
	}
	return string(docs), connector.Config
}

// eventRouter routes changes in the format of pgoutput as the documentation of Debezium's event
// router says, for the options of config.
type eventRouter struct {
	t       *testing.T
	config  map[string]string
	table   string
	columns []string
	routed  []outbox.Message
}

func (r *eventRouter) take(change []byte) {
	r.t.Helper()
	rest := change[1:]
	text := func() string {
		s, after, _ := strings.Cut(string(rest), "\x00")
		rest = []byte(after)
		return s
	}
	number := func(size int) (n int) {
		n = int(binary.BigEndian.Uint32(append(make([]byte, 4-size), rest[:size]...)))
		rest = rest[size:]
		return n
	}
	switch change[0] {
	case 'R':
		number(4)
		r.table = text() + "." + text()
		number(1)
		r.columns = make([]string, number(2))
		for i := range r.columns {
			number(1)
			r.columns[i] = text()
			number(4)
			number(4)
		}
	case 'I':
		number(4)
		number(1)
		row := map[string]*string{}
		for i := range number(2) {
			if kind := number(1); kind == 't' {
				size := number(4)
				value := string(rest[:size])
				rest, row[r.columns[i]] = rest[size:], &value
			}
		}
		r.route(row)
	case 'U', 'D', 'T':
		r.t.Errorf("the publication has a change of the kind %c", change[0])
	}
}

func (r *eventRouter) route(row map[string]*string) {
	r.t.Helper()
	topic := r.config["topic.prefix"] + "." + r.table
	if r.table != r.config["table.include.list"] || !regexp.MustCompile("^(?:"+r.config["predicates.isOutbox.pattern"]+")$").MatchString(topic) {
		r.t.Fatalf("%s is not for the router", topic)
	}
	field := func(option, usual string) string {
		if name := r.config["transforms.outbox."+option]; name != "" {
			usual = name
		}
		value := row[usual]
		if value == nil {
			return ""
		}
		return *value
	}
	m := outbox.Message{
		ID: field("table.field.event.id", "id"), Key: field("table.field.event.key", "aggregateid"),
		Topic: strings.ReplaceAll(r.config["transforms.outbox.route.topic.replacement"], "${routedByValue}", field("route.by.field", "aggregatetype")),
	}
	if payload := field("table.field.event.payload", "payload"); payload != "" {
		var err error
		if m.Payload, err = hex.DecodeString(strings.TrimPrefix(payload, `\x`)); err != nil {
			r.t.Fatal(err)
		}
	}
	for placed := range strings.SplitSeq(r.config["transforms.outbox.table.fields.additional.placement"], ",") {
		parts := strings.Split(placed, ":")
		if len(parts) != 3 || parts[1] != "header" {
			r.t.Fatalf("%q is placed nowhere", placed)
		}
		value := row[parts[0]]
		switch {
		case value == nil:
		case parts[2] == "type":
			m.Type = *value
		case parts[2] == "headers":
			if err := json.Unmarshal([]byte(*value), &m.Headers); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	r.routed = append(r.routed, m)
}
