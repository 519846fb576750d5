package command

type inboxCommand struct {
	Stats inboxStatsCommand `cmd:"" help:"What each consumer has yet to handle."`
	List  inboxListCommand  `cmd:"" help:"Messages that have failed and are to be tried again, what failed first in front."`
}

// Help implements kong.HelpProvider.
func (inboxCommand) Help() string {
	return `Messages that package inbox could not handle yet. One that has failed as often as it may is a dead letter: see idem dead.

Example: idem inbox list --consumer billing`
}
