package doctor

import "fmt"

// sequenceUse is a sequence together with the query for its highest number in use.
type sequenceUse struct {
	sequence    string
	what        string // what the numbers identify
	highest     string // an indexed query for the highest number in use
	reads       []string
	level       Level
	consequence string // the consequence of a number that is handed out twice
}

// sequenceUses are the sequences that sequenceBehind examines. No index covers all numbers of
// instances and of delayed messages. For these the query reads only the thousand rows that are due
// first.
var sequenceUses = []sequenceUse{
	{
		sequence: "outbox_seq_seq", what: "sequence numbers in idem.outbox", level: Problem, reads: []string{"outbox"},
		highest:     `SELECT coalesce(greatest((SELECT max(seq) FROM idem.outbox WHERE NOT held), (SELECT max(seq) FROM idem.outbox WHERE held)), 0)`,
		consequence: "a new message gets a lower number than older messages of its key and is published before them, or fails with SQLSTATE 23505",
	},
	{
		sequence: "delayed_seq_seq", what: "sequence numbers in idem.delayed", level: Problem, reads: []string{"delayed"},
		highest:     `SELECT coalesce((SELECT max(seq) FROM (SELECT seq FROM idem.delayed ORDER BY not_before LIMIT 1000) AS few), 0)`,
		consequence: "among messages of one key that are due at the same time, a later one may be published first, or fails with SQLSTATE 23505",
	},
	{
		sequence: "instances", what: "numbers of instances", level: Warning, reads: []string{"operations", "relays", "leases"},
		highest: `SELECT coalesce(greatest((SELECT max(instance) FROM idem.relays), (SELECT max(instance) FROM idem.leases),
			(SELECT max(owner) FROM (SELECT owner FROM idem.operations WHERE state = 'running' ORDER BY wake_at LIMIT 1000) AS few)), 0)::int8`,
		consequence: "a new process gets the number of a former one and counts as the owner of its operations, whose definitions it may not have",
	},
}

// sequenceBehind looks for sequences that will hand out numbers that are already in use. Logical
// replication copies rows but not sequences, so a subscriber that takes over has this fault.
func sequenceBehind(e *exam) {
	for i := range sequenceUses {
		n := &sequenceUses[i]
		if !e.canRead(n.reads) {
			continue
		}
		var highest int64
		// Read the rows before the sequence. In the other order, a row that is inserted in between
		// would have a number beyond the sequence as it was read.
		e.one(n.highest, nil, &highest)
		last, ok := e.last(n.sequence)
		if ok && last < highest {
			e.add(n.level, fmt.Sprintf("%s go up to %d, and the sequence idem.%s is at %d: %s", n.what, highest, n.sequence, last, n.consequence),
				setSequence(n.sequence, highest))
		}
	}
}

// last returns the last number of a sequence, or 0 if it was never used. It reports ok = false if
// the sequence does not exist, or if the connected role cannot read it. In the latter case last
// also adds a finding.
func (e *exam) last(sequence string) (last int64, ok bool) {
	var value *int64
	var there, readable bool
	e.one(`SELECT c.oid IS NOT NULL, coalesce(has_sequence_privilege(c.oid, 'USAGE, SELECT'), false),
			CASE WHEN has_sequence_privilege(c.oid, 'USAGE, SELECT') THEN pg_sequence_last_value(c.oid) END
		FROM (SELECT 1) AS one LEFT JOIN (pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'idem')
			ON c.relkind = 'S' AND c.relname = $1`, []any{sequence}, &there, &readable, &value)
	switch {
	case !there: // the check "table" reports a missing sequence
		return 0, false
	case !readable:
		e.unknown("not checked: this role may not read the sequence idem."+sequence, "GRANT SELECT ON SEQUENCE idem."+sequence+" TO "+e.self)
		return 0, false
	case value != nil:
		last = *value
	}
	return last, true
}

// setSequence returns the remedy for a sequence that is behind: a statement that sets it to the
// number "to" unless it is already beyond.
func setSequence(sequence string, to int64) string {
	return fmt.Sprintf("before anything writes here: SELECT setval('idem.%[1]s', %[2]d) FROM idem.%[1]s WHERE last_value < %[2]d", sequence, to)
}
