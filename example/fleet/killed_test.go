package fleet_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/idem-go/idem/example/fleet"
)

// Whatever a mover was at when it was killed, one cluster is the home, except between the two commits, where none is.
func TestMoveThatIsKilledAtAnyStageLeavesOneHomeAndGoesOn(t *testing.T) {
	t.Parallel()
	for stage, homes := range map[fleet.Stage][2]int{ // of west and east
		fleet.Copied: {1, 0}, fleet.Compared: {1, 0}, fleet.Fenced: {1, 0}, fleet.Checked: {1, 0}, fleet.Left: {0, 0}, fleet.Arrived: {0, 1}, fleet.Cleaned: {0, 1},
	} {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.open()
			l := w.load(3)
			l.atLeast(20)
			w.killMover(stage)
			const home = "select count(*) from fleet.tenants where state = 'home'"
			eventually(t, "the servers have noticed that the mover is gone", func() bool {
				const sessions = "select count(*) from pg_locks where locktype = 'advisory' and classid = 1718379893"
				return number(t, w.west.Pool, sessions)+number(t, w.east.Pool, sessions) == 0
			})
			if got := [2]int{number(t, w.west.Pool, home), number(t, w.east.Pool, home)}; got != homes {
				t.Errorf("west and east are the home %v times, want %v", got, homes)
			}
			if stage != fleet.Left {
				l.atLeast(10) // callers go on without a mover
			}
			w.move(w.west, w.east, fleet.MoveConfig{})
			l.atLeast(20)
			l.end(w, w.east, w.west)
		})
	}
}

// killMover runs a mover in a process of its own until it is at the stage, and kills it there.
func (w *world) killMover(stage fleet.Stage) {
	w.t.Helper()
	mover := exec.Command(os.Args[0])
	mover.Env = append(os.Environ(), "FLEET_MOVE_UNTIL="+string(stage), "FLEET_WEST="+w.westDSN, "FLEET_EAST="+w.eastDSN)
	out, err := mover.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := mover.Start(); err != nil {
		w.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = mover.Process.Kill()
	_ = mover.Wait() // it says that it was killed
	if line != "reached\n" {
		w.t.Fatalf("the mover says %q, %v", line, err)
	}
}
