package command

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/idem-go/idem/cmd/idem/internal/address"
)

// grammar declares all commands and flags for kong. kong calls the method Run of the selected
// command. The table details has the detailed help of each command. The groups separate commands
// that only read from commands that change something.
type grammar struct {
	globals

	Doctor    doctorCommand    `cmd:"" group:"look" help:"Find common problems, and say what to do."`
	Verify    verifyCommand    `cmd:"" group:"look" help:"Check that a restored or replicated database is complete."`
	Stats     statsCommand     `cmd:"" group:"look" help:"Estimate the number, size and age of records."`
	Watch     watchCommand     `cmd:"" group:"look" help:"Print the figures of stats repeatedly."`
	UI        uiCommand        `cmd:"" name:"ui" group:"look" help:"Serve a web page with figures, operations, messages and the audit log."`
	Stuck     stuckCommand     `cmd:"" group:"look" help:"List what needs a person, and why."`
	Show      showCommand      `cmd:"" group:"look" help:"Show one record."`
	List      listCommand      `cmd:"" group:"look" help:"List records, in the order of scope and key."`
	Explain   explainCommand   `cmd:"" group:"look" help:"Say what the next call with a key would get, and why."`
	Audit     auditCommand     `cmd:"" group:"look" help:"List what people changed: who, when and why."`
	Operation operationCommand `cmd:"" group:"change" help:"Operations: list, show, retry, resolve and cancel them."`
	Outbox    outboxCommand    `cmd:"" group:"look" help:"Show messages that are not published yet."`
	Inbox     inboxCommand     `cmd:"" group:"look" help:"Show messages that consumers failed to handle."`
	Dead      deadCommand      `cmd:"" group:"change" help:"Dead letters: list, show, redrive and drop them."`
	Evict     evictCommand     `cmd:"" group:"change" help:"Delete one record, so that its key is new again."`
	Purge     purgeCommand     `cmd:"" group:"change" help:"Delete expired rows."`
	Partition partitionCommand `cmd:"" group:"change" help:"Partition a table while it is in use."`
	Migrate   migrateCommand   `cmd:"" group:"change" help:"Update the schema, or undo a migration."`

	HelpOn     helpCommand       `cmd:"" name:"help" group:"other" help:"Explain the terms: idem help topics."`
	Completion completionCommand `cmd:"" group:"other" help:"Print the completion script of a shell."`
	Version    versionCommand    `cmd:"" group:"other" help:"Print the version."`
	Complete   completeCommand   `cmd:"" hidden:"" name:"__complete" passthrough:""`
}

// globals has the flags of all commands.
type globals struct {
	Help helpFlag `name:"help" help:"Show help."`

	address.Flags `group:"database"`

	JSON    bool `name:"json" group:"output" help:"Write one JSON document."`
	Timeout span `name:"timeout" group:"database" default:"30s" placeholder:"SPAN" help:"Maximum time of a statement. 0: none. Default: ${default}."`
}

// groups has the titles of the groups of commands and flags, in the order of the help.
var groups = kong.ExplicitGroups([]kong.Group{
	{Key: "look", Title: "Look"}, {Key: "change", Title: "Change"}, {Key: "other", Title: "Other"},
	{Key: "database", Title: "Database"}, {Key: "output", Title: "Output"},
})

// errHelp ends the parsing after the help was printed.
var errHelp = errors.New("help")

// helpFlag is --help. It replaces the flag of kong, which also takes -h. As in psql, -h is the
// host.
type helpFlag bool

// IgnoreDefault tells kong not to apply a default value.
func (helpFlag) IgnoreDefault() {}

// BeforeReset prints the help before kong checks the other arguments.
func (helpFlag) BeforeReset(ctx *kong.Context) error {
	if err := ctx.PrintUsage(false); err != nil {
		return err
	}
	return errHelp
}

// span is a duration that may be given in days or weeks, such as 90s, 1h30m, 7d or 2w.
type span time.Duration

// UnmarshalText parses a span. It fails if the span is negative or longer than about 100 years.
func (s *span) UnmarshalText(text []byte) error {
	word := string(text)
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if digits, ok := strings.CutSuffix(word, suffix); ok {
			var n float64
			if _, err := fmt.Sscanf(digits+" ", "%g ", &n); err != nil || n < 0 || n > 36500 {
				return fmt.Errorf("%q is not a duration: write 90s, 1h30m, 7d or 2w", word)
			}
			*s = span(n * float64(unit))
			return nil
		}
	}
	if word == "0" {
		*s = 0
		return nil
	}
	d, err := time.ParseDuration(word)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration: write 90s, 1h30m, 7d or 2w", word)
	}
	*s = span(d)
	return nil
}
