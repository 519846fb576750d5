package model

import (
	"testing"
	"time"
)

func TestKeys_Exhaustive(t *testing.T) {
	for _, m := range []Keys{{3, 2, 2, ""}} {
		at := time.Now()
		broken, path, states, steps := Explore[State](m)
		t.Log(m)
		t.Logf("%d states, %d steps, depth %d, %v", states, steps, len(path), time.Since(at))
		if broken != "" {
			for _, n := range path {
				t.Logf("%v %+v", n.Step, n.State)
			}
			t.Fatalf("%s", broken)
		}
	}
}

func TestOps_Exhaustive(t *testing.T) {
	at := time.Now()
	broken, path, states, steps := Explore[OpState](Operations{Crashes: Crashes})
	t.Logf("%d states, %d steps, depth %d, %v", states, steps, len(path), time.Since(at))
	if broken != "" {
		for _, n := range path {
			t.Logf("%v %+v", n.Step, n.State)
		}
		t.Fatalf("%s", broken)
	}
}
