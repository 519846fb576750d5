package contestant

// These are the names of the contestants in the results and the report.
const (
	NamePlain            = "plain transaction"
	NamePipelined        = "plain, pipelined"
	NameIdem             = "idem.Do"
	NameIdemBatch        = "idem.Do, batch in fn"
	NameIdemHinted       = "idem.Do, replay likely"
	NameIdemSQL          = "idemsql.Do, OpenDB"
	NamePlainSQL         = "plain, database/sql"
	NameTextbook         = "textbook, by hand"
	NameSelectInsert     = "SELECT, then INSERT"
	NamePhases           = "atomic phases (Leach)"
	NameDBOS             = "DBOS Transact"
	NameRiver            = "River unique insert"
	NameFiber            = "fiber idempotency"
	NameRedisAlways      = "Redis SET NX, always"
	NameRedisEverySecond = "Redis SET NX, everysec"
	NameBareWrites       = "two bare writes of a record"
	NameLookup           = "SELECT by primary key"
)
