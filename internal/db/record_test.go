package db

import (
	"testing"
	"time"
)

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
