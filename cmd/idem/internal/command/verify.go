package command

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/address"
	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/cmd/idem/internal/page"
)

type verifyCommand struct {
	Against string `placeholder:"NAME|URL" help:"Compare with this database: the one that is replaced, or another copy."`
	Role    string `placeholder:"ROLE" help:"Examine the privileges of this role of the program, and not those of the connected role."`
	All     bool   `short:"a" help:"Also show the checks that found nothing."`
}

func (verifyCommand) Help() string {
	return `Use it on a restored database, or on one that will take over, before the first process uses it. It only reads, and scans the tables. It finds
what is incomplete, and with --against what differs from another database. docs/operate.md has the steps around it. It does not know whether the
effects in tables of your own are complete. The exit code is 3 if there is a warning or a problem, and otherwise 6 if a check was not possible;
notes do not count.

Example: idem verify -d postgres://new/shop --against postgres://old/shop`
}

// Run runs the checks of verify, prints the findings, and returns the error for the exit code.
func (c *verifyCommand) Run(s *session) error {
	pool, err := s.connected()
	if err != nil {
		return err
	}
	options := doctor.Options{Role: c.Role, Now: s.Now}
	if c.Against != "" {
		config, err := address.Flags{DBName: c.Against}.Config(func(name string) string {
			if name == "DATABASE_URL" {
				return "" // it names the database under test, and not the one to compare with
			}
			return s.Getenv(name)
		}, s.name)
		if err != nil {
			return err
		}
		if options.Against, err = pgxpool.NewWithConfig(s.ctx, config); err != nil {
			return err
		}
		defer options.Against.Close()
	}
	results, err := doctor.Verify(s.ctx, pool, options, func(name string, done, of int) { s.progress("%d of %d: %s", done+1, of, name) })
	s.progress("")
	if err != nil {
		return err
	}
	shown := newShownChecks(results)
	if err := s.show(shown, func(p *page.Page) { shown.text(p, c.All) }); err != nil {
		return err
	}
	return shown.verdict()
}
