package scene

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/shop"
	"github.com/idem-go/idem/example/orders/process"
)

// Scene is a fault or a move that happens while clients place orders.
type Scene struct {
	Name string
	play func(ctx context.Context, s *Stage, c *crowd) (note string, err error)
}

// Moves is the scene in which a tenant moves.
var Moves = Scene{"a tenant moves under load", moved}

// All is the list of all scenes, in the order in which they are played.
var All = []Scene{
	{"kill -9 of an instance", killedInstance},
	{"kill -9 of etcd's leader", killedEtcd},
	{"kill -9 of a cluster's leader", killedLeader},
	Moves,
	{"kill -9 of a mover that has left", killedMover},
	{"kill -9 of a leader in a move", killedInMove},
}

// Perform plays a scene and checks the books. The clients must receive answers before and after the
// scene.
func (s *Stage) Perform(ctx context.Context, scene Scene) (b Books, note string, err error) {
	c := newCrowd(ctx, s.addresses)
	if err = c.answered(ctx, 10); err == nil {
		note, err = scene.play(ctx, s, c)
	}
	if err == nil {
		err = c.answered(ctx, 10)
	}
	if left := c.leave(); err == nil {
		err = left
	}
	if err == nil {
		err = insist(ctx, func() (err error) { b, err = s.readBooks(ctx, c); return err })
	}
	return b, note, err
}

// patience is how long insist tolerates a cluster without a leader.
const patience = 5 * time.Minute

// insist repeats ask while it fails with an error that passes, such as a cluster without a leader.
// On a busy machine a leader may lose its lease without being killed.
func insist(ctx context.Context, ask func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := ask()
		passes := idem.Retryable(err) || errors.Is(err, fleet.ErrMoving) || errors.Is(err, errNotStarted)
		if !passes || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func killedInstance(ctx context.Context, s *Stage, c *crowd) (string, error) {
	revive := s.killInstance(ctx)
	if err := c.answered(ctx, 20); err != nil {
		return "", err
	}
	return "", revive()
}

func killedEtcd(ctx context.Context, s *Stage, c *crowd) (string, error) {
	revive, err := s.system.KillEtcdLeader(ctx)
	if err != nil {
		return "", err
	}
	if err := c.answered(ctx, 20); err != nil {
		return "", err
	}
	return "", revive()
}

// killedLeader kills the leader of west, the cluster with two standbys. In east, with one standby,
// a synchronous leader without its standby would accept no writes. If an earlier scene has moved
// the tenant, killedLeader first moves it back.
func killedLeader(ctx context.Context, s *Stage, c *crowd) (string, error) {
	home, other, err := s.homes(ctx, Mover)
	if err == nil && home.Name != s.west.Name {
		err = insist(ctx, func() error {
			_, err := fleet.Move(ctx, home, other, Mover, fleet.MoveConfig{Tables: shop.Tables})
			return err
		})
	}
	if err != nil {
		return "", err
	}
	revive, err := s.nodes["west"].KillLeader(ctx)
	if err != nil {
		return "", err
	}
	if err := c.answered(ctx, 20); err != nil {
		return "", err
	}
	if err := revive(); err != nil {
		return "", err
	}
	return "", s.nodes["west"].Whole(ctx)
}

func moved(ctx context.Context, s *Stage, c *crowd) (string, error) {
	from, to, err := s.homes(ctx, Mover)
	if err != nil {
		return "", err
	}
	var report fleet.Report
	err = insist(ctx, func() (err error) {
		c.forgetWaits()
		report, err = fleet.Move(ctx, from, to, Mover, fleet.MoveConfig{Tables: shop.Tables})
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rows from %s to %s in %d rounds, pause %d ms; of the tenant's calls meanwhile 99%% took less than %d ms, the longest %d ms",
		report.Rows, from.Name, to.Name, report.Rounds, report.Pause.Milliseconds(), c.wait(Mover, 0.99).Milliseconds(), c.wait(Mover, 1).Milliseconds()), nil
}

// killedMover kills a mover at the worst moment: after the commit of the old home and before the
// commit of the new home.
func killedMover(ctx context.Context, s *Stage, _ *crowd) (string, error) {
	from, to, err := s.homes(ctx, Mover)
	if err != nil {
		return "", err
	}
	var p *process.Process
	err = insist(ctx, func() (err error) { p, err = s.run(ctx, "move", string(fleet.Left), from.Name); return err })
	if err != nil {
		return "", err
	}
	p.Kill()
	began := time.Now()
	err = insist(ctx, func() error { // the server must first notice that the mover is dead
		_, err := fleet.Move(ctx, from, to, Mover, fleet.MoveConfig{Tables: shop.Tables})
		return err
	})
	return fmt.Sprintf("moved again, from %s to %s, in %.1f s", from.Name, to.Name, time.Since(began).Seconds()), err
}

// killedInMove kills the leader of west during a move from or to west. The mover tries again until
// the tenant has moved.
func killedInMove(ctx context.Context, s *Stage, _ *crowd) (string, error) {
	from, to, err := s.homes(ctx, Mover)
	if err != nil {
		return "", err
	}
	var once sync.Once
	var revive func() error
	var killing error
	tries := 0
	for err = errors.New("not begun"); err != nil && killing == nil && ctx.Err() == nil; tries++ {
		_, err = fleet.Move(ctx, from, to, Mover, fleet.MoveConfig{Tables: shop.Tables, Progress: func(stage fleet.Stage, _ int64) {
			if stage == fleet.Fenced {
				once.Do(func() { revive, killing = s.nodes["west"].KillLeader(ctx) })
			}
		}})
		if err != nil {
			time.Sleep(200 * time.Millisecond) // west has no leader yet
		}
	}
	if err = errors.Join(err, killing); err != nil {
		return "", err
	}
	if err := revive(); err != nil {
		return "", err
	}
	return fmt.Sprintf("from %s to %s, behind the fence; moved at try %d", from.Name, to.Name, tries), s.nodes["west"].Whole(ctx)
}
