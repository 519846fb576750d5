package inbox

// state is how far a delivery is on its way to its outcome.
type state int

const (
	untried state = iota // no transaction has claimed it
	claimed              // by the attempt under way, or by the last one, which has failed
	unclear              // the outcome of the COMMIT of the last attempt is not known
	settled              // it has its outcome
	putOff               // that is to come again, through no fault of its own
)

// notice is what the record is told of an attempt before it begins, because a message that kills its process leaves nothing else behind.
type notice int

const (
	needless notice = iota // it is not known to have been delivered before, or is not to be tried
	due                    // it is, and the attempt is to be announced
	together               // the attempt is announced, as one with others
	byItself               // and as one that it makes alone
)
