package command

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/address"
	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/cmd/idem/internal/page"
)

type verifyCommand struct {
	Against string `placeholder:"NAME|URL" help:"Compare with this database: the one that is taken over from, or another copy."`
	Role    string `placeholder:"ROLE" help:"Look at the privileges of this role, which calls, instead of the one that is connected."`
	All     bool   `short:"a" help:"Show the checks that found nothing as well."`
}

// Help implements kong.HelpProvider.
func (verifyCommand) Help() string {
	return `For a database that was restored, or that is to take over, before the first process is started on it. Only reads, and walks the tables:
what is incomplete in itself, and with --against what is different from another one. The steps around it are in docs/operate.md. What it
cannot know is whether the effects in tables of your own are there.
The exit code is 3 if there is a warning or a problem, and otherwise 6 if something could not be checked; notes do not count.

Example: idem verify -d postgres://new/shop --against postgres://old/shop`
}

// Run runs the checks of doctor.Verify and prints the findings.
func (c *verifyCommand) Run(s *session) error {
	pool, err := s.connected()
	if err != nil {
		return err
	}
	options := doctor.Options{Role: c.Role, Now: s.Now}
	if c.Against != "" {
		config, err := address.Flags{DBName: c.Against}.Config(func(name string) string {
			if name == "DATABASE_URL" {
				return "" // the environment is for the first database
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
