package db

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// noted is a Sealer that does not encrypt, and stores its arguments.
type noted struct {
	id, plain, bound string
	err              error
}

var sampleKey = NewKey("the scope", "the key", [32]byte{1, 2, 3}, "11111111-2222-4333-8444-555555555555", 90*time.Second)

func (n *noted) Seal(plain, bound []byte) (string, []byte, error) {
	n.plain, n.bound = string(plain), string(bound)
	return n.id, plain, n.err
}

func (n *noted) Open(id string, sealed, bound []byte) ([]byte, error) {
	n.id, n.plain, n.bound = id, string(sealed), string(bound)
	return sealed, n.err
}

// Databases hold data in this format.
func TestFormOfWhatIsSealedIsFrozen(t *testing.T) {
	t.Parallel()
	c := &Complete{Key: &sampleKey, State: Failed, Status: -402, Header: []byte(`{"A":["b"]}`), Body: []byte("the body")}
	s := &noted{id: "id"}
	if err := c.Seal(s); err != nil {
		t.Fatal(err)
	}
	if want := "\x00\x00\x00\x0b" + `{"A":["b"]}` + "the body"; s.plain != want {
		t.Errorf("sealed is %q, want %q", s.plain, want)
	}
	want := "idem.response/1\n" + "\x00\x00\x00\x00\x00\x00\x00\x09the scope" + "\x00\x00\x00\x00\x00\x00\x00\x07the key" +
		"\x00\x00\x00\x00\x00\x00\x00\x20\x01\x02\x03" + strings.Repeat("\x00", 29) +
		"\x00\x00\x00\x00\x00\x00\x00\x2411111111-2222-4333-8444-555555555555" + "\x00\x00\x00\x00\x00\x00\x00\x06failed" +
		"\xff\xff\xff\xff\xff\xff\xfe\x6e"
	if diff := cmp.Diff(hex.Dump([]byte(want)), hex.Dump([]byte(s.bound))); diff != "" {
		t.Errorf("bound (-want +got):\n%s", diff)
	}
}

func TestWhatIsBoundIsNeverTheSameForTwoRecords(t *testing.T) {
	t.Parallel()
	const id = "11111111-2222-4333-8444-555555555555"
	seen := map[string]string{}
	add := func(name, scope, key string, hash byte, executionID string, state State, status int) {
		k := NewKey(scope, key, [32]byte{hash}, executionID, 0)
		bound := string(k.bound(executionID, state, status))
		if other, ok := seen[bound]; ok {
			t.Errorf("%q and %q are bound alike", name, other)
		}
		seen[bound] = name
	}
	add("a record", "ab", "cd", 1, id, Completed, 201)
	add("scope and key divided elsewhere", "abc", "d", 1, id, Completed, 201)
	add("a scope that looks like a length", "ab\x00\x00\x00\x00\x00\x00\x00\x02cd", "", 1, id, Completed, 201)
	add("hash", "ab", "cd", 2, id, Completed, 201)
	add("operation", "ab", "cd", 1, strings.Replace(id, "1", "2", 1), Completed, 201)
	add("state", "ab", "cd", 1, id, Failed, 201)
	add("status", "ab", "cd", 1, id, Completed, 200)
	add("negative status", "ab", "cd", 1, id, Completed, -201)
}

func TestSealerThatLeavesAResponsePlainChangesNothing(t *testing.T) {
	t.Parallel()
	header, body := []byte(`{"A":["b"]}`), []byte("the body")
	c := &Complete{Key: &sampleKey, State: Completed, Header: header, Body: body}
	if err := c.Seal(&noted{}); err != nil || string(c.Header) != string(header) || string(c.Body) != string(body) || c.SealedBy != "" {
		t.Errorf("%+v, %v", c, err)
	}
}

// A Sealer may return other data than was sealed.
func TestOpenedTextThatIsNoResponseIsAnError(t *testing.T) {
	t.Parallel()
	for _, opened := range []string{"", "\x00\x00\x00", "\x00\x00\x00\x01", "\xff\xff\xff\xff{}", "\x00\x00\x00\x01{", "\x00\x00\x00\x02[]"} {
		r := Record{SealedBy: "id", Closed: true, Body: []byte(opened)}
		if err := r.Open(&sampleKey, &noted{}); err == nil || !r.Closed {
			t.Errorf("%q is %v %q", opened, r.Header, r.Body)
		}
	}
}

func TestRecordIsOpenedOnceAndOnlyIfItWasLoaded(t *testing.T) {
	t.Parallel()
	s := &noted{err: errors.New("not to be asked")}
	if err := (&Record{SealedBy: "id", Body: []byte("x")}).Open(&sampleKey, s); err != nil {
		t.Error(err)
	}
	r := Record{Closed: true, Body: []byte("x")}
	if err := errors.Join(r.Open(&sampleKey, &noted{}), r.Open(&sampleKey, s)); err != nil || string(r.Body) != "x" {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzSplitResponse checks that any input is a header and a body, or an error.
func FuzzSplitResponse(f *testing.F) {
	for _, joined := range []string{"", "\x00\x00\x00\x00", "\x00\x00\x00\x02{}body", "\x00\x00\x00\x09short", "\xff\xff\xff\xff"} {
		f.Add([]byte(joined))
	}
	f.Fuzz(func(t *testing.T, joined []byte) {
		header, body, err := splitResponse(joined)
		if err != nil {
			if header != nil || body != nil {
				t.Errorf("%q, %q and %v", header, body, err)
			}
			return
		}
		if again := joinResponse(header, body); string(again) != string(joined) {
			t.Errorf("%q becomes %q", joined, again)
		}
	})
}
