package contestant

import "github.com/idem-go/idem"

// replayLikely is what tells idem that the key has probably been answered.
var replayLikely = []idem.Option{idem.WithReplayLikely()}

// Hinted is Idem told that each call is probably a replay, as a client's second attempt is: for cells of replays.
func Hinted() []Contestant {
	return []Contestant{idemContestant(NameIdemHinted, idemRunner{options: replayLikely})}
}
