package personality

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgproxy"
)

// Faults configures faults of COMMIT. A number n selects every n-th COMMIT, and 0 selects none.
type Faults struct {
	Conflict  int    // every n-th transaction that writes a record is rolled back; COMMIT is answered with 40001
	Uncertain int    // every n-th COMMIT is executed, but answered with the SQLSTATE in the field Code
	Lost      int    // every n-th COMMIT is executed, and the connection breaks before the answer
	Code      string // SQLSTATE of the answer for Uncertain: 40003 or XX000
}

// Proxy makes a PostgreSQL server behave like another product, which a Personality describes.
type Proxy struct {
	*pgproxy.Proxy
	refused         atomic.Int64
	conflicts       atomic.Int64
	uncertain, lost *pgproxy.Trap
}

// New starts a proxy in front of a database. It first prepares that database: it creates functions
// in the schema "personality", and sets the default isolation level. The caller closes the proxy.
func New(p *Personality, dsn string, faults Faults) (*Proxy, error) {
	if err := prepare(p, dsn, faults.Conflict); err != nil {
		return nil, fmt.Errorf("personality: %w", err)
	}
	proxy := &Proxy{}
	var err error
	proxy.Proxy, err = pgproxy.NewRewriting(dsn, func(sql string) string {
		text, refused := p.rewrite(sql)
		if refused {
			proxy.refused.Add(1)
		}
		return text
	})
	if err != nil {
		return nil, fmt.Errorf("personality: %w", err)
	}
	proxy.Observe(func(e pgproxy.Event) {
		if e.Stage == pgproxy.Answered && e.Code == "40001" && pgproxy.IsCommit(e.Statement) {
			proxy.conflicts.Add(1)
		}
	})
	proxy.uncertain = proxy.Replace(everyCommit(faults.Uncertain), "COMMIT", faults.Code)
	proxy.lost = proxy.ArmEach(pgproxy.AfterAnswer(everyCommit(faults.Lost), "COMMIT"), pgproxy.Reset)
	return proxy, nil
}

// everyCommit selects every n-th COMMIT, or none if n is 0.
func everyCommit(n int) pgproxy.Match {
	var commits atomic.Int64
	return func(s pgproxy.Statement) bool {
		return n > 0 && pgproxy.IsCommit(s) && commits.Add(1)%int64(n) == 0
	}
}

func prepare(p *Personality, dsn string, conflict int) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	// dsn may lead to a pooler, which can lose prepared statements.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	ctx := context.Background()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, definition := range p.definitions(conflict) {
		if _, err := conn.Exec(ctx, definition); err != nil {
			return fmt.Errorf("%s: %w", definition, err)
		}
	}
	return nil
}

// Refused returns how many statements the proxy has refused.
func (p *Proxy) Refused() int { return int(p.refused.Load()) }

// Faulted returns three numbers of COMMITs: those that were rolled back, those that committed and
// were answered with an error, and those that committed and got no answer.
func (p *Proxy) Faulted() (rolledBack, uncertain, lost int) {
	return int(p.conflicts.Load()), p.uncertain.Count(), p.lost.Count()
}
