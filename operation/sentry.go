package operation

import (
	"slices"
	"strings"
	"sync/atomic"
)

// sentry is a Worker as the guard of its session knows it.
type sentry struct {
	due   chan struct{}          // has a value if it is to look for what is due
	watch chan struct{}          // has a value if a guard is to look what there is to watch
	knows func(name string) bool // whether it has the definition of that name
	full  atomic.Bool            // it has no room for what is due
}

func newSentry(knows func(name string) bool) *sentry {
	return &sentry{due: make(chan struct{}, 1), watch: make(chan struct{}, 1), knows: knows}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// What a guard finds and its own Worker does not take up, it tells all processes that listen: the names of the operations, everyNames if
// they are too many, busyNames if operations are under way again, which the other guard watches too, and wantedNames if a guard is wanted.
// Only a guard does so, about once a second at most: Postgres commits transactions that notify one after the other, so no commit of an
// operation is one of them.

const (
	wantedNames = ""
	everyNames  = "#" // no definition has that name
	busyNames   = "#busy"
	tellable    = 7900
)

// hear is told what a guard has told.
func (s *sentry) hear(names string) {
	switch {
	case names == wantedNames, names == busyNames:
		poke(s.watch)
	case names == everyNames || slices.ContainsFunc(strings.Split(names, "\n"), s.knows):
		poke(s.due)
	}
}
