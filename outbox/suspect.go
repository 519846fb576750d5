package outbox

// trial finds out, after an error that blames no message, whether the destination is away or a message is bad. Messages are
// published one at a time. One that fails alone is suspected; when another one is published after it, it is tried again, and is to
// blame if it fails again, unless the Publisher says that its destination is away. As long as everything fails the destination is away, and no attempt is counted.
type trial struct {
	on       bool
	rounds   int                // since something was published
	suspects map[int64]*suspect // by their places
}

// suspect is a message that has failed alone.
type suspect struct {
	outlived bool // another message was published after that
	again    int  // how often it has failed since
	tries    int
}

// outlive notes that a message was published.
func (t *trial) outlive(place int64) {
	delete(t.suspects, place)
	for _, s := range t.suspects {
		s.outlived = true
	}
}
