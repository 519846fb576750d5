package operation

import "github.com/idem-go/idem/internal/store"

// An operation that kills its process leaves nothing behind but its row, with an owner that is gone. So do all others that the process
// was working on. A take-up counts such a death; a commit begins the count anew. What an operation did not survive in company proves
// little against it: after store.Suspected deaths it is a suspect, of which a process works on one at a time. So a guilty one dies
// alone, and the others get on in their turn. A Worker without the turn waits for it, and then comes before callers, which ask again anyway:
// or else callers that come one after the other would keep it from all other suspects.

// maxDeaths is how many processes an operation may have had die, by default.
const maxDeaths = 10

// turn has room for one suspect in this process, whatever pools it has: it is the process that dies.
var turn = make(chan struct{}, 1)

// takeTurn reports whether this process works on no suspect, and may take one up.
func takeTurn() bool {
	select {
	case turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func endTurn() { <-turn }

// keepTurn keeps the turn for an operation that was taken up and is a suspect, until it is given back with the instance.
func (w *work) keepTurn(found bool, t *store.Taken) {
	if found && t.Deaths >= store.Suspected {
		w.suspected = true
		return
	}
	endTurn()
}
