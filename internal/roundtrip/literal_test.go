package roundtrip

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

// hostile are texts that would end a literal, or have another meaning, if they were not encoded.
var hostile = []string{
	"", "'", "''", `\`, `\'`, `'); drop schema public --`, "$1", "$2 $3 $10", "$tag$", `E'\x27'`, `\x00`, "/* */ --\n",
	"a\nb\tc", "\u2028\u2029", "Überweisung", "\U0001F511", "e\u0301", "%s %d", strings.Repeat(`'\`, 500), ";commit;",
}

// In the simple protocol, and in sessions with another encoding, values become part of the
// statement.
func TestTrip_HostileTextArrivesUnchanged(t *testing.T) {
	t.Parallel()
	dsn := pgtest.EmptyDSN(t)
	for name, mode := range modes {
		for _, settings := range []string{
			"", "set standard_conforming_strings = off", "set bytea_output = escape",
			"set client_encoding = latin1", "set client_encoding = sjis", "set backslash_quote = on", "set escape_string_warning = on",
		} {
			t.Run(name+" "+settings, func(t *testing.T) {
				t.Parallel()
				conn := connect(t, dsn, mode)
				if settings != "" {
					exec(t, conn, settings)
				}
				if err := Prepare(t.Context(), conn, []*Statement{echo}); err != nil {
					t.Fatal(err)
				}
				for i, text := range hostile {
					wantEchoed(t, conn, int64(i), text, []byte(text))
				}
				wantEchoed(t, conn, -1<<63, "", allBytes())
			})
		}
	}
}

func TestTrip_NilIsNull(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trip := On(newConn(t, mode))
			trip.Add(echo, nil, nil, nil)
			trip.Send(t.Context())
			var got echoed
			trip.Row(got.read)
			if err := trip.End(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(echoed{isNull: true}, got, cmp.AllowUnexported(echoed{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzTrip_TextAndBytesArriveUnchanged(f *testing.F) {
	for _, text := range hostile {
		f.Add(int64(len(text)), text, []byte(text))
	}
	f.Add(int64(0), "x", allBytes())
	conns := []*pgx.Conn{newConn(f, pgx.QueryExecModeSimpleProtocol), newConn(f, pgx.QueryExecModeExec)}
	exec(f, conns[0], "set standard_conforming_strings = off")
	exec(f, conns[1], "set client_encoding = latin1")
	f.Fuzz(func(t *testing.T, number int64, text string, value []byte) {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Skip("no text that Postgres stores")
		}
		for _, conn := range conns {
			wantEchoed(t, conn, number, text, value)
		}
	})
}

// wantEchoed fails the test unless the server returns the values that it was sent.
func wantEchoed(t *testing.T, conn *pgx.Conn, number int64, text string, value []byte) {
	t.Helper()
	trip := On(conn)
	trip.Add(echo, strconv.AppendInt(nil, number, 10), append([]byte{}, text...), append([]byte{}, value...))
	trip.Send(context.Background())
	var got echoed
	found := trip.Row(got.read)
	if err := trip.End(); err != nil || !found {
		t.Fatalf("%q: %v, row %t", text, err, found)
	}
	if got.number != strconv.FormatInt(number, 10) || string(got.text) != text || got.isNull ||
		!bytes.Equal(got.bytes, value) || !bytes.Equal(got.bytesAsText, value) {
		t.Errorf("sent %d, %q, %x; the server has %+v", number, text, value, got)
	}
}

func allBytes() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// randomBytes returns bytes of which many have a special meaning in literals.
func randomBytes(rng *rand.Rand, n int) []byte {
	const special = `\\\x0127'""` + "\x00\x7f\x80\xff"
	b := make([]byte, n)
	for i := range b {
		if b[i] = byte(rng.Uint32()); rng.IntN(2) == 0 {
			b[i] = special[rng.IntN(len(special))]
		}
	}
	return b
}
