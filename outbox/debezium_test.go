package outbox_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// The columns have the names that the event router reads by default, and types that hold at least
// what its documentation requires.
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
	got := o.text(`select concat_ws('|', aggregatetype, aggregateid, type, convert_from(payload, 'UTF8'), headers ->> 'tenant') from idem.outbox where id = $1`, m.ID)
	if got != `orders|order 1|OrderPlaced|{"id":1}|t` {
		t.Error(got)
	}
	trace := o.text(`select tracingspancontext from idem.outbox where id = $1`, m.ID) // a file of Java properties
	if diff := cmp.Diff("traceparent="+parent+"\n"+`tracestate=a=1,b=\\x`+"\n", trace); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := o.count(`select count(*) from idem.outbox where tracingspancontext is null and payload is null and id = $1`, untraced.ID); n != 1 {
		t.Error("there is a trace where none was given")
	}
}

// The columns of the documented configuration exist, and its publication can be created.
func TestDebezium_DocumentedConfigurationFits(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	docs, err := os.ReadFile("../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(docs), "```json\n")
	block, _, _ = strings.Cut(block, "```")
	var connector struct{ Config map[string]string }
	if err := json.Unmarshal([]byte(block), &connector); err != nil {
		t.Fatal(err)
	}
	publication := regexp.MustCompile("`(CREATE PUBLICATION [^`]*)`").FindStringSubmatch(string(docs))
	if publication == nil {
		t.Fatal("the docs have no publication")
	}
	o.exec(publication[1])
	name, table := connector.Config["publication.name"], connector.Config["table.include.list"]
	if got := o.text(`select concat_ws('.', schemaname, tablename) from pg_publication_tables where pubname = $1`, name); got != table {
		t.Errorf("%s publishes %s", name, got)
	}
	topic := connector.Config["topic.prefix"] + "." + table
	if !regexp.MustCompile("^(?:" + connector.Config["predicates.isOutbox.pattern"] + ")$").MatchString(topic) {
		t.Errorf("the router ignores %s", topic)
	}
	for placement := range strings.SplitSeq(connector.Config["transforms.outbox.table.fields.additional.placement"], ",") {
		column, _, _ := strings.Cut(placement, ":")
		if n := o.count(`select count(*) from information_schema.columns where table_schema || '.' || table_name = $1 and column_name = $2`, table, column); n != 1 {
			t.Errorf("%s has no column %s", table, column)
		}
	}
}
