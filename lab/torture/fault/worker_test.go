package fault

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

func TestKilledWorkerIsGone(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := newParty(t, c, 1, "")
	p.awaitProgress(t, 1)
	injectOne(t, Target{c, p}, "kill", 1)
	<-p.slots[0].process.Done()
	if event := inject(t, Target{c, p}, "kill", 1); event != nil {
		t.Errorf("a worker that is dead was killed: %+v", *event)
	}
}

func TestStoppedWorkerStandsStillAndGoesOn(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	p := newParty(t, c, 1, "")
	p.awaitProgress(t, 1)
	stopped := func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.slots[0].process.PID()))
		return bytes.Contains(stat, []byte(") T "))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		injectOne(t, Target{c, p}, "stop", 1)
	}()
	eventually(t, "the worker is stopped", stopped)
	<-done
	eventually(t, "the worker goes on", func() bool { return !stopped() })
	p.awaitProgress(t, 1)
}
