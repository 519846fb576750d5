//go:build unix

package operation_test

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
)

// stop stops the process where it is, and returns once it stands still.
func (v *victim) stop(t *testing.T) {
	t.Helper()
	pid := v.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process is not stopped: %v, %v", status, err)
	}
}

// wake lets the process go on.
func (v *victim) wake(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(v.cmd.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// A process is stopped within an operation until another process has claimed it. When it wakes up, nothing of it is committed any more, and
// its caller gets the answer of the other process.
func TestFence_StoppedProcessIsRefused(t *testing.T) {
	t.Parallel()
	asleep := []string{"charged", "in confirm", "behind confirm", "before the refund", "in release"}
	t.Run("its session is gone", func(t *testing.T) {
		t.Parallel()
		const gone = `select count(pg_terminate_backend(pid, 30000)) from pg_stat_activity where application_name = 'idem presence' and datname = current_database()`
		forEachZombie(t, asleep, func(t *testing.T, s *shop, point, in string) {
			v := newZombie(t, s, point, in, gone)
			if _, err := pointed(s.pool, func(string) {}).Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(limit)); err != nil {
				t.Fatal(err)
			}
			v.wake(t)
			s.wantBuried(v, in)
		})
	})
	t.Run("its lease is over", func(t *testing.T) { // the process does not notice: its COMMIT meets another one
		t.Parallel()
		const over = `with over as (update idem.leases set expires_at = clock_timestamp() returning 1) select count(*) from over`
		forEachZombie(t, asleep, func(t *testing.T, s *shop, point, in string) {
			proxy := pgtest.Proxy(t, s.dsn)
			v := newZombie(t, s.through(proxy), point, in, over, victimPooled+"=1")
			refused := proxy.Next(pgproxy.Answered, pgproxy.Contains("AdvanceOperation"))
			var once sync.Once
			last := map[string]string{"book": "behind confirm", "reject": "in release"}[in]
			goesOn := pointed(s.pool, func(at string) {
				if at == last {
					once.Do(func() {
						v.wake(t)
						if e := await(t, "the zombie's COMMIT", refused); e.Code != "22012" {
							t.Errorf("the zombie's COMMIT was answered by %s %s", e.Tag, e.Code)
						}
					})
				}
			})
			if _, err := goesOn.Do(t.Context(), s.pool, scope, "k", hashA, in, idem.WithWait(limit)); err != nil {
				t.Fatal(err)
			}
			s.wantBuried(v, in)
		})
	})
}

func forEachZombie(t *testing.T, points []string, f func(t *testing.T, s *shop, point, in string)) {
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			f(t, newBankShop(t), point, inputOf(point))
		})
	}
}

// newZombie returns a process that is stopped at a point, and that no other process sees any more.
func newZombie(t *testing.T, s *shop, point, in, unseen string, env ...string) *victim {
	t.Helper()
	v := newVictim(t, s, point, in, env...)
	v.stop(t)
	if _, err := v.in.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	if n := s.count(unseen); n != 1 {
		t.Fatalf("%d processes were seen", n)
	}
	return v
}

// wantBuried fails the test unless the caller of the zombie got the answer, and nothing of the zombie is committed.
func (s *shop) wantBuried(v *victim, in string) {
	s.t.Helper()
	want := map[string]string{"book": "answered 201 false <nil>", "reject": "answered 402 false <nil>"}[in]
	said := make(chan string, 1)
	go func() {
		line, _ := v.out.ReadString('\n')
		said <- strings.TrimSpace(line)
	}()
	if said := await(s.t, "the zombie's caller to be answered", said); said != want {
		s.t.Errorf("the zombie's caller got %q, want %q", said, want)
	}
	s.wantBooks(in)
	if epoch := s.count(`select epoch from idem.operations where ended_at is not null`); epoch != 2 {
		s.t.Errorf("it has ended in epoch %d", epoch)
	}
}
