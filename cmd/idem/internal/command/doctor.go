package command

import (
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/address"
	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/cmd/idem/internal/page"
)

type doctorCommand struct {
	Role string `placeholder:"ROLE" help:"Examine the privileges and settings of this role of the program, and not those of the connected role."`
	All  bool   `short:"a" help:"Also show the checks that found nothing."`
	Scan bool   `help:"Scan tables of any size where a check needs it."`
	sealKeys
}

// Run runs all checks. It passes on only the ids of the seal keys, with which the doctor looks for
// records that were sealed with another key.
func (c *doctorCommand) Run(s *session) error {
	secrets, err := c.secrets(s)
	if err != nil {
		return err
	}
	pool, err := s.connected()
	if err != nil {
		return err
	}
	options := doctor.Options{Role: c.Role, Scan: c.Scan, Now: s.Now, SealKeys: slices.Sorted(maps.Keys(secrets))}
	return runChecks(s, c.All, func(progress func(string, int, int)) ([]doctor.Result, error) {
		return doctor.Examine(s.ctx, pool, options, progress)
	})
}

// runChecks runs the checks of idem doctor or idem verify, prints the findings, and returns the
// error that sets the exit code.
func runChecks(s *session, all bool, run func(progress func(name string, done, of int)) ([]doctor.Result, error)) error {
	results, err := run(func(name string, done, of int) { s.progress("%d of %d: %s", done+1, of, name) })
	s.progress("")
	if err != nil {
		return err
	}
	shown := newShownChecks(results)
	if err := s.show(shown, func(p *page.Page) { shown.text(p, all) }); err != nil {
		return err
	}
	return shown.verdict()
}

// shownChecks is the JSON document of idem doctor and idem verify.
type shownChecks struct {
	Problems int             `json:"problems"`
	Warnings int             `json:"warnings"`
	Notes    int             `json:"notes"`
	Unknown  int             `json:"unknown"`
	Checks   []doctor.Result `json:"checks"`
}

// verdict returns the error that sets the exit code: errFound if there is a warning or a problem,
// and otherwise errUnknown if a check could not be made.
func (s *shownChecks) verdict() error {
	switch {
	case s.Warnings+s.Problems > 0:
		return errFound
	case s.Unknown > 0:
		return errUnknown
	}
	return nil
}

// newShownChecks counts the findings by level.
func newShownChecks(results []doctor.Result) shownChecks {
	n := doctor.Count(results)
	return shownChecks{n[doctor.Problem], n[doctor.Warning], n[doctor.Note], n[doctor.Unknown], results}
}

// text prints all findings, the most severe first. If all is true, it also prints the checks
// without a finding.
func (s *shownChecks) text(p *page.Page, all bool) {
	for _, level := range doctor.Levels {
		for _, found := range mergeFindings(s.Checks, level) {
			printFinding(p, strings.Join(found.checks, ", "), found.Finding)
		}
	}
	if all {
		for _, result := range s.Checks {
			if len(result.Findings) == 0 {
				p.Printf("%s %s\n", p.Green("ok      "), result.Check)
			}
		}
	}
	p.Printf("%d checks: %d problems, %d warnings, %d notes, %d could not be checked\n",
		len(s.Checks), s.Problems, s.Warnings, s.Notes, s.Unknown)
}

// mergedFinding is a finding with the names of all checks that reported it. Many checks report the
// same finding if, for example, the table is missing.
type mergedFinding struct {
	doctor.Finding
	checks []string
}

// mergeFindings returns the findings of a level, with equal findings merged.
func mergeFindings(results []doctor.Result, level doctor.Level) []*mergedFinding {
	var all []*mergedFinding
	known := map[doctor.Finding]*mergedFinding{}
	for _, result := range results {
		for _, finding := range result.Findings {
			if finding.Level != level {
				continue
			}
			if known[finding] == nil {
				known[finding] = &mergedFinding{Finding: finding}
				all = append(all, known[finding])
			}
			known[finding].checks = append(known[finding].checks, result.Check)
		}
	}
	return all
}

// printFinding prints the checks and the level of a finding, what is wrong, and what to do.
func printFinding(p *page.Page, check string, f doctor.Finding) {
	paint := map[doctor.Level]func(string) string{
		doctor.Problem: p.Red, doctor.Warning: p.Yellow, doctor.Note: p.Dim, doctor.Unknown: p.Dim,
	}[f.Level]
	const width, indent = 100, "         "
	level := string(f.Level)
	p.Printf("%s\n", p.Bold(page.Wrap(check, paint((level + "       ")[:7])+"  ", width)))
	p.Printf("%s\n", page.Wrap(page.Safe(f.What)+".", indent, width))
	p.Printf("%s\n\n", page.Wrap(page.Safe(f.Remedy)+".", indent+"→ ", width))
}

type verifyCommand struct {
	Against string `placeholder:"NAME|URL" help:"Compare with this database: the one that is replaced, or another copy."`
	Role    string `placeholder:"ROLE" help:"Examine the privileges of this role of the program, and not those of the connected role."`
	All     bool   `short:"a" help:"Also show the checks that found nothing."`
}

// Run runs the checks of idem verify. With --against it also compares the database with another
// one.
func (c *verifyCommand) Run(s *session) error {
	pool, err := s.connected()
	if err != nil {
		return err
	}
	options := doctor.Options{Role: c.Role, Now: s.Now}
	if c.Against != "" {
		config, err := address.Flags{DBName: c.Against}.Config(func(name string) string {
			if name == "DATABASE_URL" {
				return "" // DATABASE_URL names the database under test, and not the one of --against
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
	return runChecks(s, c.All, func(progress func(string, int, int)) ([]doctor.Result, error) {
		return doctor.Verify(s.ctx, pool, options, progress)
	})
}
