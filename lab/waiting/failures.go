package waiting

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that collects its failures instead of failing.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	output strings.Builder
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.output, format+"\n", args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// Failures returns the failures that a check reports. They do not fail t.
func Failures(t testing.TB, check func(testing.TB)) string {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		check(r)
	}()
	<-ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}
