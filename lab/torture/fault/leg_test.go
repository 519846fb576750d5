package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// stage starts a leg with workers that have begun to work.
func stage(t *testing.T, name Name, settings ...string) (*Scene, *party) {
	t.Helper()
	legs := Legs()
	i := slices.IndexFunc(legs, func(l Leg) bool { return l.Name == name })
	if i < 0 {
		t.Fatalf("there is no leg %q", name)
	}
	require(t, legs[i].Possible)
	scene, err := legs[i].Start(within(t), LegOptions{Bin: bin(t), Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(scene.Cluster.Primary().LogTail())
		}
		if err := scene.Close(); err != nil {
			t.Error(err)
		}
	})
	install(t, scene.Cluster)
	p := newParty(t, scene.Cluster, 2, "")
	p.awaitProgress(t, 5)
	return scene, p
}

// once runs the event of a leg one time while the workers work.
func (s *Scene) once(t *testing.T, p *party, seed uint64) Event {
	t.Helper()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var events []Event
	if err := s.Run(over, seed, p, func(e Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || events[0].Err != "" {
		t.Fatalf("events: %+v", events)
	}
	return events[0]
}

func TestSynchronousFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	s, p := stage(t, "failover-sync")
	for seed := range uint64(2) {
		old := s.Cluster.Primary()
		s.once(t, p, seed)
		if s.Cluster.Primary() == old || s.Cluster.Standby() == nil {
			t.Error("the standby has not taken over, or has not been replaced")
		}
		p.awaitProgress(t, 5)
	}
	acknowledged := p.halt(t, s.Cluster)
	if n := lost(t, s.Cluster, acknowledged); n > 0 {
		t.Errorf("%d of %d acknowledged keys are lost", n, len(acknowledged))
	}
}

func TestNothingIsAcknowledgedThatAStalledStandbyDoesNotHave(t *testing.T) {
	t.Parallel()
	s, p := stage(t, FailoverStalled)
	event := s.once(t, p, 1)
	if event.Loses || event.For < stall {
		t.Errorf("it may lose something: %v; it took %v", event.Loses, event.For)
	}
	p.awaitProgress(t, 5)
	acknowledged := p.halt(t, s.Cluster)
	if n := lost(t, s.Cluster, acknowledged); n > 0 {
		t.Errorf("%d of %d acknowledged keys are lost", n, len(acknowledged))
	}
}

func TestAsynchronousFailoverLosesKeysTogetherWithTheirEffects(t *testing.T) {
	t.Parallel()
	s, p := stage(t, "failover-async")
	event := s.once(t, p, 1)
	if !event.Loses {
		t.Error("the event does not say that something may be lost")
	}
	p.awaitProgress(t, 5)
	acknowledged := p.halt(t, s.Cluster)
	if n := lost(t, s.Cluster, acknowledged); n == 0 {
		t.Errorf("none of %d acknowledged keys is lost: the standby did not lag behind", len(acknowledged))
	}
}

func TestFullDiskIsSurvived(t *testing.T) {
	t.Parallel()
	for name, says := range map[Name]string{DiskFullData: "No space left on device", DiskFullWAL: "PANIC:"} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			s, p := stage(t, name)
			for seed := range uint64(2) {
				s.once(t, p, seed)
				p.awaitProgress(t, 5)
			}
			acknowledged := p.halt(t, s.Cluster)
			if n := lost(t, s.Cluster, acknowledged); n > 0 {
				t.Errorf("%d of %d acknowledged keys are lost", n, len(acknowledged))
			}
			if !strings.Contains(log(t, s.Cluster), says) {
				t.Errorf("the server never said %q:\n%s", says, log(t, s.Cluster))
			}
		})
	}
}

func TestFailingSyncIsAPanicAndLosesNothing(t *testing.T) {
	t.Parallel()
	s, p := stage(t, "sync-fails")
	for seed := range uint64(2) {
		s.once(t, p, seed)
		p.awaitProgress(t, 5)
	}
	acknowledged := p.halt(t, s.Cluster)
	if n := lost(t, s.Cluster, acknowledged); n > 0 {
		t.Errorf("%d of %d acknowledged keys are lost", n, len(acknowledged))
	}
	if said := log(t, s.Cluster); !strings.Contains(said, "could not fdatasync file") || !strings.Contains(said, "Input/output error") {
		t.Errorf("the server did not panic:\n%s", said)
	}
}

func TestPowerLossLosesNothingThatWasSynced(t *testing.T) {
	t.Parallel()
	s, p := stage(t, "power-loss")
	for seed := range uint64(2) {
		s.once(t, p, seed)
		p.awaitProgress(t, 5)
	}
	acknowledged := p.halt(t, s.Cluster)
	if n := lost(t, s.Cluster, acknowledged); n > 0 {
		t.Errorf("%d of %d acknowledged keys are lost", n, len(acknowledged))
	}
}

// This test proves that the power loss discards data: at least one key is gone whose COMMIT the
// server acknowledged without syncing it. The leg syncs the disk when it begins, and a busy kernel
// may write back later commits by itself. In that case the test repeats the power loss.
func TestPowerLossLosesWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	s, p := stage(t, "power-loss", "fsync=off")
	for n := range tries {
		acknowledged, err := committedDuring(t, s, n, func() error {
			over, cancel := context.WithCancel(context.Background())
			defer cancel()
			return s.Run(over, uint64(n), p, func(Event) { cancel() })
		})
		if errors.Is(err, ErrNotRecovered) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var there int
		err = s.Cluster.Do(within(t), func(conn *pgx.Conn) error {
			return conn.QueryRow(within(t), "select count(*) from done where key = any($1)", acknowledged).Scan(&there)
		})
		if err != nil || there < len(acknowledged) { // or what is left of the database cannot be read
			return
		}
	}
	t.Errorf("the power was lost %d times, and no key with it", tries)
}

// committedDuring commits keys while run is running, until a commit fails, and returns the
// acknowledged keys.
func committedDuring(t *testing.T, s *Scene, n int, run func() error) (acknowledged []string, err error) {
	t.Helper()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Sprintf("not synced %d %d", n, i)
			if s.Cluster.Exec(within(t), "insert into done values ('"+key+"')") != nil {
				return
			}
			acknowledged = append(acknowledged, key)
		}
	}()
	err = run()
	close(stop)
	<-stopped
	return acknowledged, err
}

func TestClockOfTheDatabaseJumpsAndComesBack(t *testing.T) {
	t.Parallel()
	s, p := stage(t, "clock")
	// A slow read is less exact: the offset is at least what the duration of the read does not
	// explain.
	offset := func() time.Duration {
		var now time.Time
		before := time.Now()
		err := s.Cluster.Do(within(t), func(conn *pgx.Conn) error {
			return conn.QueryRow(within(t), "select clock_timestamp()").Scan(&now)
		})
		if err != nil {
			t.Fatal(err)
		}
		if after := time.Now(); now.After(after) {
			return now.Sub(after)
		}
		return min(now.Sub(before), 0)
	}
	done := make(chan Event, 1)
	go func() { defer close(done); done <- s.once(t, p, 4) }()
	largest := time.Duration(0)
	for len(done) == 0 {
		largest = max(largest, offset().Abs())
	}
	event := <-done
	want, err := time.ParseDuration(strings.TrimPrefix(event.Detail, "by "))
	if err != nil || !event.MovesClock || (largest-want.Abs()).Abs() > time.Second || want.Abs() < 2*time.Second {
		t.Errorf("%s: the clock was off by %v (%v)", event.Detail, largest, err)
	}
	if now := offset().Abs(); now > 2*time.Second {
		t.Errorf("the clock is still off by %v", now)
	}
	p.awaitProgress(t, 5)
}

func TestDiskIsTakenAwayHoweverItsOwnerEnds(t *testing.T) {
	t.Parallel()
	require(t, diskPossible())
	d, err := newDisk(8)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.root(), "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Open(d.root()) // as a server is that has not ended yet
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if err := d.guard.Run(); err != nil { // which is what the end of this process does
		t.Error(err)
	}
	if _, err := os.Stat(d.dir); err == nil {
		t.Errorf("%s is still there", d.dir)
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil || strings.Contains(string(mounts), d.dir) {
		t.Errorf("it is still mounted (%v)", err)
	}
}

func TestEveryLegSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for _, l := range Legs() {
		if l.Name == "" || l.About == "" || l.stage == nil {
			t.Errorf("%+v", l)
		}
		if l.Possible != nil {
			if _, err := l.Start(within(t), LegOptions{}); !errors.Is(err, l.Possible) {
				t.Errorf("%s: started although %v", l.Name, l.Possible)
			}
		}
	}
}
