package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/example/fleet/patroni"
)

// TestMain is also the program: the stage starts it with the commands of its processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "move") {
		main()
		return
	}
	os.Exit(m.Run())
}

// A failover of the cluster that a tenant is at home in, and a move whose mover dies between the two commits.
func TestNothingIsLostOrDoubledUnderPatroni(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	s, err := newStage(ctx, 1000)
	if errors.Is(err, patroni.ErrMissing) && os.Getenv("IDEM_TEST_REQUIRE") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, scene := range scenes {
		if !strings.Contains(scene.name, "cluster's leader") && !strings.Contains(scene.name, "left") {
			continue
		}
		b, note, err := s.perform(ctx, scene)
		if err != nil {
			t.Errorf("%s: %v", scene.name, err)
		}
		t.Logf("%s: %+v %s", scene.name, b, note)
	}
}
