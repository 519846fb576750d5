package pull

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/inbox"
)

func TestQueue_ReadyKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	now := time.Now()
	type held struct {
		key    string
		due    time.Duration
		failed bool
	}
	for name, test := range map[string]struct {
		ordered bool
		held    []held
		limit   int
		want    []int
		due     time.Duration // of the first one, if none is ready
	}{
		"new":                {true, []held{{key: "a"}, {key: "b"}, {key: "a"}}, 9, []int{0, 1, 2}, 0},
		"limit":              {true, []held{{key: "a"}, {key: "b"}, {key: "a"}}, 2, []int{0, 1}, 0},
		"behind a later one": {true, []held{{key: "a", due: 9}, {key: "b"}, {key: "a"}, {}}, 9, []int{1, 3}, 0},
		"not ordered":        {false, []held{{key: "a", due: 9}, {key: "b"}, {key: "a"}}, 9, []int{1, 2}, 0},
		"no key":             {true, []held{{due: 9}, {}}, 9, []int{1}, 0},
		"none is due":        {true, []held{{key: "a", due: 9}, {key: "b", due: 8}}, 9, nil, 8},
		"failed":             {true, []held{{key: "a", failed: true}, {key: "b"}, {key: "a"}}, 9, []int{0, 1}, 0},
		"several failed": {
			true, []held{{key: "a", failed: true}, {key: "a"}, {key: "a", failed: true}, {key: "a"}}, 9, []int{0, 1, 2}, 0,
		},
		"failed, not ordered": {false, []held{{key: "a", failed: true}, {key: "a"}}, 9, []int{0, 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := queue[int]{ordered: test.ordered}
			for i, h := range test.held {
				d := &Delivery[int]{Raw: i, Message: inbox.Message{Source: "orders", Key: h.key}, failed: h.failed}
				if h.due > 0 {
					d.due = now.Add(h.due)
				}
				q.held = append(q.held, d)
			}
			ready, due := q.ready(now, test.limit)
			var got []int
			for _, d := range ready {
				got = append(got, d.Raw)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ready (-want +got):\n%s", diff)
			}
			if test.due > 0 && due.Sub(now) != test.due {
				t.Errorf("the first one is due in %v, want %v", due.Sub(now), test.due)
			}
		})
	}
}
