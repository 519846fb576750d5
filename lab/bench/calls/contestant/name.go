package contestant

// These are the names of the contestants in the results and the report.
const (
	NamePlain            = "plain transaction"
	NamePipelined        = "plain, pipelined"
	NameIdem             = "idem.Do"
	NameIdemBatch        = "idem.Do, batch in fn"
	NameIdemHinted       = "idem.Do, replay likely"
	NameTextbook         = "textbook, by hand"
	NameSelectInsert     = "SELECT, then INSERT"
	NameDBOS             = "DBOS Transact"
	NameRedisAlways      = "Redis SET NX, always"
	NameRedisEverySecond = "Redis SET NX, everysec"
	NameLookup           = "SELECT by primary key"
)
