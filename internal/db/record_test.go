package db

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHeaderIsReadAsItWasStored(t *testing.T) {
	t.Parallel()
	for _, header := range []map[string][]string{
		nil,
		{"Location": {"/orders/1"}},
		{"Empty": {}, "Blank": {""}, "Many": {"a", "b", "a"}},
		{`quotes " and \ and <html> & 'apostrophes'`: {"line\nbreak", "\u2028", "\U0001F511", "e\u0301"}},
	} {
		stored, err := EncodeHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		read, err := decodeHeader(stored)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(header, read); diff != "" {
			t.Errorf("(-stored +read):\n%s", diff)
		}
	}
}

func TestNoHeaderIsStoredAsNull(t *testing.T) {
	t.Parallel()
	for _, header := range []map[string][]string{nil, {}} {
		if stored, err := EncodeHeader(header); stored != nil || err != nil {
			t.Errorf("%#v is stored as %q, %v", header, stored, err)
		}
	}
}

func TestHeaderThatIsNoneIsAnError(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"{", "[]", `{"a":"b"}`, "7"} {
		if header, err := decodeHeader([]byte(stored)); err == nil {
			t.Errorf("%s is read as %v", stored, header)
		}
	}
}

func TestRecordExpiresAtTheMomentItSaysUnlessItIsOurs(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	key := Key{ExecutionID: "ours"}
	for _, test := range []struct {
		name          string
		found         bool
		executionID   string
		left          time.Duration
		ours, expired bool
	}{
		{name: "none", executionID: "ours", left: -1},
		{name: "live", found: true, executionID: "theirs", left: time.Microsecond},
		{name: "at the moment", found: true, executionID: "theirs", left: 0, expired: true},
		{name: "over", found: true, executionID: "theirs", left: -time.Microsecond, expired: true},
		{name: "ours and over", found: true, executionID: "ours", left: -time.Hour, ours: true},
	} {
		l := Load{Key: &key, Found: test.found, Record: Record{ExecutionID: test.executionID, LoadedAt: now, ExpiresAt: now.Add(test.left)}}
		if l.Ours() != test.ours || l.Expired() != test.expired {
			t.Errorf("%s: ours %t, expired %t", test.name, l.Ours(), l.Expired())
		}
	}
}
