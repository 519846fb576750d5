package goal

import (
	"fmt"
	"math"
)

// doubt is how often a coin may do what the rounds did, and they still count as having decided.
const doubt = 0.05

// mostRounds is how many rounds are worth thinking of.
const mostRounds = 999

// most is how many of the rounds are on the side of the bound that has more of them.
func most(holding, rounds int) int { return max(holding, rounds-holding) }

// isDecided reports whether so many rounds on one side of a bound are no chance: all of them, or more than a coin would put
// there (a sign test).
func isDecided(more, rounds int) bool {
	return more == rounds || atLeastHeads(more, rounds) < doubt
}

// roundsToDecide estimates how many rounds would decide, if they go on to fall as they have: zero if there is no telling.
func roundsToDecide(more, rounds int) int {
	share := float64(more) / float64(rounds)
	for n := rounds + 1; n <= mostRounds; n++ {
		if atLeastHeads(int(math.Round(share*float64(n))), n) < doubt {
			return n
		}
	}
	return 0
}

// wanting tells what would decide.
func wanting(more, rounds int) string {
	if n := roundsToDecide(more, rounds); n > 0 {
		return fmt.Sprintf("about %d rounds would decide", n)
	}
	return fmt.Sprintf("not even %d rounds would decide", mostRounds)
}
