package outbox_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// Debezium itself is not at hand. What it reads is: the log, by the plugin, slot and publication of the docs' configuration, which
// then says what happens to each row.
func TestLogHasWhatTheDocsConfigureDebeziumToRead(t *testing.T) {
	t.Parallel()
	docs, config := debeziumDocs(t)
	o := &office{t: t}
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
	o.exec(`delete from idem.outbox`) // what is old

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

// debeziumDocs returns the page about Debezium, and the configuration in it.
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

// eventRouter does with changes in the format of pgoutput what Debezium's does, by its documentation and as far as it is configured.
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
