package roundtrip

import (
	"math"
	"strings"
	"testing"
	"time"
)

var types = New(Statement{
	SQL: `select coalesce($1::pg_catalog.text, 'null'), coalesce($2::pg_catalog.bytea, 'null'::pg_catalog.bytea), coalesce($3::pg_catalog.int8::pg_catalog.text, 'null'),
		coalesce($4::pg_catalog.bool::pg_catalog.text, 'null'),
		coalesce((pg_catalog.date_part('epoch', $5::pg_catalog.interval) operator(pg_catalog.*) 1000000)::pg_catalog.int8::pg_catalog.text, 'null')`,
	Params:  []Param{TextParam, BytesParam, PlainParam, PlainParam, PlainParam},
	Results: []int16{Text, Binary, Text, Text, Text},
})

func TestValues_ArriveUnchanged(t *testing.T) {
	t.Parallel()
	long, text, number, yes, pause := strings.Repeat("long", 300), `t'e"x\t $1`, int64(math.MinInt64), true, -1500*time.Microsecond
	for mode, execMode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			conn := newConn(t, execMode)
			trip := On(conn)
			add := func(text string, bytes []byte, number int64, truth bool, pause time.Duration) {
				values := trip.Values()
				values.Text(text)
				values.Bytes(bytes)
				values.Int64(number)
				values.Bool(truth)
				values.Interval(pause)
				trip.Add(types, values.List()...)
			}
			add("", []byte{}, 0, false, 0) // empty values are not NULL
			add(long, []byte(long), math.MaxInt64, true, 24*time.Hour)
			null := trip.Values()
			null.NullText(nil)
			null.Bytes(nil)
			null.NullInt64(nil)
			null.NullBool(nil)
			null.NullInterval(nil)
			trip.Add(types, null.List()...)
			given := trip.Values()
			given.NullText(&text)
			given.Bytes([]byte(text))
			given.NullInt64(&number)
			given.NullBool(&yes)
			given.NullInterval(&pause)
			trip.Add(types, given.List()...)
			trip.Send(t.Context())
			for _, want := range [][5]string{
				{"", "", "0", "false", "0"}, {long, long, "9223372036854775807", "true", "86400000000"},
				{"null", "null", "null", "null", "null"}, {text, text, "-9223372036854775808", "true", "-1500"},
			} {
				var got [5]string
				trip.Row(func(row *Row) {
					got = [5]string{row.Text(), string(row.Bytes()), row.Text(), row.Text(), row.Text()}
				})
				if got != want {
					t.Errorf("got  %q\nwant %q", got, want)
				}
			}
			if err := trip.End(); err != nil {
				t.Error(err)
			}
		})
	}
}
