package scene

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/optional"
)

// TestMain is also the program: the stage starts it with the commands of its processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "serve" || os.Args[1] == "move") {
		if err := Command(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A failover of the cluster that a tenant is at home in, and a move whose mover dies between the two commits.
func TestNothingIsLostOrDoubledUnderPatroni(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	s, err := Start(ctx, 1000)
	optional.Require(t, err)
	defer s.Close()
	for _, scene := range All {
		if !strings.Contains(scene.Name, "cluster's leader") && !strings.Contains(scene.Name, "left") {
			continue
		}
		b, note, err := s.Perform(ctx, scene)
		if err != nil {
			t.Errorf("%s: %v", scene.Name, err)
		}
		t.Logf("%s: %+v %s", scene.Name, b, note)
	}
}
