package ledger

import (
	"io"
	"math/rand/v2"
	"sync"
)

// Team is processes that do the same, one of which is killed and replaced now and then.
type Team struct {
	role    string
	log     io.Writer
	env     []string
	mu      sync.Mutex
	members []*Process
	closed  bool
}

// NewTeam starts so many processes.
func NewTeam(n int, role string, log io.Writer, env ...string) (*Team, error) {
	team := &Team{role: role, log: log, env: env, members: make([]*Process, n)}
	for i := range team.members {
		if err := team.replace(i); err != nil {
			team.Close()
			return nil, err
		}
	}
	return team, nil
}

// KillOne kills any of them, and starts another one.
func (team *Team) KillOne() error {
	team.mu.Lock()
	defer team.mu.Unlock()
	if team.closed {
		return nil
	}
	i := rand.N(len(team.members))
	team.members[i].Kill()
	return team.replace(i)
}

func (team *Team) replace(i int) (err error) {
	team.members[i], err = Start(team.role, team.log, team.env...)
	return err
}

// Close kills them all.
func (team *Team) Close() {
	team.mu.Lock()
	defer team.mu.Unlock()
	team.closed = true
	for _, p := range team.members {
		if p != nil {
			p.Kill()
		}
	}
}
