package promises_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

var update = flag.Bool("update", false, "add missing hashes to testdata/hashes.json; those that are there never change")

const goldenHashes = "testdata/hashes.json"

// hashVector is a list of byte strings, or of documents that are equal under the same options.
type hashVector struct {
	Name    string   `json:"name"`
	Parts   []string `json:"parts,omitempty"`
	Docs    []string `json:"docs,omitempty"`
	Only    []string `json:"only,omitempty"`
	Without []string `json:"without,omitempty"`
	Hash    string   `json:"hash"`
}

func (v hashVector) options() []idem.HashOption {
	var opts []idem.HashOption
	if len(v.Only) > 0 {
		opts = append(opts, idem.Only(v.Only...))
	}
	return append(opts, idem.Without(v.Without...))
}

func (v hashVector) hashes(t *testing.T) []string {
	if v.Docs == nil {
		var parts [][]byte
		for _, part := range v.Parts {
			parts = append(parts, []byte(part))
		}
		return []string{idem.HashBytes(parts...).String()}
	}
	var hashes []string
	for _, doc := range v.Docs {
		hashes = append(hashes, hashJSON(t, doc, v.options()...).String())
	}
	return hashes
}

func hashJSON(t *testing.T, doc string, opts ...idem.HashOption) idem.Hash {
	t.Helper()
	hash, err := idem.HashJSON([]byte(doc), opts...)
	if err != nil {
		t.Fatalf("HashJSON(%.200q): %v", doc, err)
	}
	return hash
}

// Databases store hashes, so the hashes in the golden file must never change.
func TestHashesAreFrozen(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile(goldenHashes)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []hashVector
	if err := json.Unmarshal(golden, &vectors); err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	for i, v := range vectors {
		hashes := v.hashes(t)
		if *update && v.Hash == "" {
			vectors[i].Hash = hashes[0]
		}
		for j, hash := range hashes {
			if hash != vectors[i].Hash {
				t.Errorf("%s: hash %d is %s, want %s", v.Name, j, hash, vectors[i].Hash)
			}
		}
		if other, ok := owner[hashes[0]]; ok {
			t.Errorf("%s hashes like %s", v.Name, other)
		}
		owner[hashes[0]] = v.Name
	}
	if *update {
		writeVectors(t, vectors)
	}
}

func writeVectors(t *testing.T, vectors []hashVector) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	if err := enc.Encode(vectors); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenHashes, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestHashJSONRefusesWithReasonAndOffset(t *testing.T) {
	t.Parallel()
	tests := []struct {
		doc  string
		opts []idem.HashOption
		want string
	}{
		{doc: "", want: "unexpected end at byte 0"},
		{doc: "{} {}", want: "data after the value at byte 3"},
		{doc: `{"a":1,"\u0061":1}`, want: "second member of one name at byte 7"},
		{doc: `["\ud83d"]`, want: "unpaired surrogate at byte 2"},
		{doc: "\"\xff\"", want: "invalid UTF-8 at byte 1"},
		{doc: "[1e1000000000000001]", want: "number out of range at byte 1"},
		{doc: strings.Repeat("[", 257), want: "nested too deep at byte 256"},
		{doc: "{}", opts: []idem.HashOption{idem.Only("/a")}, want: "nothing that Only selects at byte 0"},
		{doc: `{"a":1,"b":[}`, opts: []idem.HashOption{idem.Only("/a"), idem.Without("/b")}, want: "expected a value at byte 12"},
	}
	for _, tt := range tests {
		hash, err := idem.HashJSON([]byte(tt.doc), tt.opts...)
		want := "idem: invalid JSON document: " + tt.want
		if !errors.Is(err, idem.ErrInvalidJSON) || errors.Is(err, idem.ErrInvalidPointer) || err.Error() != want || hash != (idem.Hash{}) {
			t.Errorf("HashJSON(%.100q) = %v, %v; want the error %q", tt.doc, hash, err, want)
		}
	}
}

func TestHashJSONLeavesTheDocumentAlone(t *testing.T) {
	t.Parallel()
	const doc = `{"b":"\u0061","a":[1.0,{"d":1,"c":2}]}`
	got := []byte(doc)
	for _, opts := range [][]idem.HashOption{nil, {idem.Only("/a")}, {idem.Without("/a/0")}} {
		if _, err := idem.HashJSON(got, opts...); err != nil {
			t.Fatal(err)
		}
	}
	if string(got) != doc {
		t.Errorf("document is now %s", got)
	}
}

const orderDocument = `{"order_id":"ord_01HZX4","customer":{"id":48211,"email":"ada@example.com"},"items":[` +
	`{"sku":"A-100","qty":2,"price":19.90},{"sku":"B-7","qty":1,"price":5}],"currency":"EUR","note":"leave at door"}`

func BenchmarkHashBytes(b *testing.B) {
	doc := []byte(orderDocument)
	b.ReportAllocs()
	for b.Loop() {
		idem.HashBytes(doc)
	}
}

func BenchmarkHashJSON(b *testing.B) {
	doc := []byte(orderDocument)
	for name, opts := range map[string][]idem.HashOption{
		"whole":   nil,
		"only":    {idem.Only("/customer/id", "/items", "/currency")},
		"without": {idem.Without("/note", "/customer/email")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := idem.HashJSON(doc, opts...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleHashJSON() {
	first, _ := idem.HashJSON([]byte(`{"amount": 10.50, "currency": "EUR"}`))
	retry, _ := idem.HashJSON([]byte(`{"currency":"EUR","amount":1050e-2}`))
	other, _ := idem.HashJSON([]byte(`{"amount": 10.51, "currency": "EUR"}`))
	fmt.Println(first == retry, first == other)

	_, err := idem.HashJSON([]byte(`{"amount": 10.50, "amount": 9999}`))
	fmt.Println(errors.Is(err, idem.ErrInvalidJSON), err)
	// Output:
	// true false
	// true idem: invalid JSON document: second member of one name at byte 18
}

// The zero hash that HashJSON returns with an error would make all such requests equal.
func TestZeroHashIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := nowhere(t)
	ignored, _ := idem.HashJSON([]byte("not JSON"))
	for name, call := range map[string]func() error{
		"Do": func() error {
			_, err := idemDo(ctx, pool, scope, "k", ignored, neverCalled(t))
			return err
		},
		"DoTx": func() error {
			_, err := idem.DoTx(ctx, unusable{}, scope, "k", ignored, neverCalled(t))
			return err
		},
		"DoJSON": func() error {
			_, _, err := idem.DoJSON(ctx, pool, scope, "k", ignored, func(pgx.Tx) (int, error) { return 0, errors.New("fn was called") })
			return err
		},
		"an operation": func() error {
			_, err := internals.Do(ctx, pool, scope, "k", ignored, nil, nil)
			return err
		},
		"an operation inside a transaction": func() error {
			_, err := internals.Start(ctx, unusable{}, scope, "k", ignored, nil, nil)
			return err
		},
	} {
		if err := call(); !errors.Is(err, idem.ErrInvalidHash) || idem.CauseOf(err) != idem.CauseInvalid || idem.Retryable(err) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	if pool.Stat().AcquireCount() != 0 {
		t.Error("the pool was asked for a connection")
	}
}

// unusable is a transaction whose methods must not be called.
type unusable struct{ pgx.Tx }
