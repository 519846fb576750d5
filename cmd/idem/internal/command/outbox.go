package command

type outboxCommand struct {
	Stats outboxStatsCommand `cmd:"" help:"How far the outbox is behind, and whether a relay is there."`
	List  outboxListCommand  `cmd:"" help:"Messages that are not published yet, in the order in which they were added."`

	Forget outboxForgetCommand `cmd:"" help:"Take its topics from a relay that is not deployed any more."`
}

// Help implements kong.HelpProvider.
func (outboxCommand) Help() string {
	return `Messages that package outbox has written, and a relay has yet to publish. One that could not be published holds back those of its topic
and key, until it is published or dead: see idem dead.

Example: idem outbox list --state held`
}
