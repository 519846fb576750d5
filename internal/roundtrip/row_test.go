package roundtrip

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Postgres is the oracle: it writes the bytes in both forms.
func TestDecodeBytea_ReadsBothTextForms(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 15))
	for _, form := range []string{"hex", "escape"} {
		t.Run(form, func(t *testing.T) {
			conn := newConn(t, pgx.QueryExecModeExec)
			exec(t, conn, "set bytea_output = "+form)
			values := [][]byte{{}, allBytes(), []byte(`\x41`), []byte(`\`), []byte(`\\`), []byte(`\101`), []byte("x"), {0}, {255}}
			for range 200 {
				values = append(values, randomBytes(rng, rng.IntN(40)))
			}
			for _, value := range values {
				var text string
				result := conn.PgConn().ExecParams(t.Context(), "select $1::bytea", [][]byte{value}, nil, []int16{Binary}, []int16{Text}).Read()
				if result.Err != nil {
					t.Fatal(result.Err)
				}
				text = string(result.Rows[0][0])
				if strings.HasPrefix(text, `\x`) != (form == "hex") {
					t.Fatalf("%q is not in the form %s", text, form)
				}
				if decoded, err := decodeBytea(text); err != nil || !bytes.Equal(decoded, value) {
					t.Errorf("%x, written %q, is read as %x, %v", value, text, decoded, err)
				}
			}
		})
	}
}

func TestDecodeBytea_RefusesInvalidText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`\x4`, `\xzz`, `\`, `\1`, `\12`, `a\`, `\400`, `\999`, `\abc`, `\-01`, `\+01`} {
		if decoded, err := decodeBytea(text); err == nil {
			t.Errorf("%q is read as %x", text, decoded)
		}
	}
}

func TestRow_BytesReturnsCopy(t *testing.T) {
	t.Parallel()
	sent := []byte("body")
	row := Row{values: [][]byte{sent}, fields: []pgconn.FieldDescription{{Format: Binary}}}
	got := row.Bytes()
	copy(sent, "gone") // the connection reuses its buffer
	if string(got) != "body" {
		t.Errorf("Bytes returns the buffer itself: %q", got)
	}
}

func TestRow_TimeIsExactInAllModesAndTimeZones(t *testing.T) {
	t.Parallel()
	moments := []string{
		"2000-01-01 00:00:00+00", "1999-12-31 23:59:59.999999+00", "2026-11-21 16:05:48.123456+00", "0001-01-01 00:00:00+00",
		"9999-12-31 23:59:59.999999+00", "2024-02-29 12:00:00.000001+14",
	}
	plain := New(Statement{SQL: "select /*moment*/$1::timestamptz/**/", Params: []Param{PlainParam}, Results: []int16{Binary}})
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := newConn(t, mode)
			for _, settings := range [][]string{
				{"set bytea_output = hex"}, {"set bytea_output = escape"}, {"set timezone = 'Asia/Kathmandu'", "set datestyle = 'SQL, DMY'"},
			} {
				exec(t, conn, settings...)
				for _, moment := range moments {
					want, err := time.Parse("2006-01-02 15:04:05.999999-07", moment)
					if err != nil {
						t.Fatal(err)
					}
					trip := On(conn)
					trip.Add(plain, []byte(moment))
					trip.Send(t.Context())
					var got time.Time
					trip.Row(func(row *Row) { got = row.Time() })
					if err := trip.End(); err != nil || !got.Equal(want) || got.Location() != time.UTC {
						t.Errorf("%v: %s is read as %v, %v", settings, moment, got, err)
					}
				}
			}
		})
	}
}

// A value that cannot be read fails the trip, because a wrong answer would look like the stored
// one.
func TestRow_InvalidValueFailsTheTripOnly(t *testing.T) {
	t.Parallel()
	conn := newConn(t, pgx.QueryExecModeExec)
	for name, test := range map[string]struct {
		sql  string
		scan func(*Row)
	}{
		"too few columns": {"select 'a'", func(row *Row) { row.Text(); row.Text() }},
		"no number":       {"select 'a'", func(row *Row) { row.Int() }},
		"no moment":       {`select '\x0102'::bytea`, func(row *Row) { row.Time() }},
		"no bytea":        {`select '\xzz'`, func(row *Row) { row.Bytes() }},
	} {
		trip := On(conn)
		trip.Add(New(Statement{SQL: test.sql, Results: []int16{Text}}))
		trip.Exec("select 1")
		trip.Send(context.Background())
		if trip.Row(test.scan) {
			t.Errorf("%s: there is a row", name)
		}
		trip.Skip()
		if err := trip.End(); err == nil || !strings.Contains(err.Error(), "stored record") {
			t.Errorf("%s: the error is %v", name, err)
		}
		exec(t, conn, "select 1")
	}
}
