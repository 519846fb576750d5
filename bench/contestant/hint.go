package contestant

import "github.com/idem-go/idem"

// replayLikely is what tells idem that the key has probably been answered. As long as it is empty, nobody takes part
// with the hint.
var replayLikely []idem.Option

// Hinted is Idem told that each call is probably a replay, as a client's second attempt is: for cells of replays.
func Hinted() []Contestant {
	if len(replayLikely) == 0 {
		return nil
	}
	return []Contestant{idemContestant(NameIdemHinted, idemRunner{options: replayLikely})}
}
