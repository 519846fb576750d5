package vitals

import "github.com/idem-go/idem/internal/vitals/db"

// Table is a table of the schema, with all its partitions.
type Table struct {
	Name       string `json:"name"`
	HeapBytes  int64  `json:"heap_bytes"`
	IndexBytes int64  `json:"index_bytes"`
	OtherBytes int64  `json:"other_bytes"`
	LiveRows   int64  `json:"live_rows"` // as counted since the last vacuum, or analyze
	DeadRows   int64  `json:"dead_rows"` // not vacuumed yet
}

// tables are those of the migrations. TestVitalsKnowEveryTable compares them.
const tables = "{audit,dead_letters,delayed,inbox,leases,operations,outbox,published,records,relay_topics,relays,signals,steps,sweeps}"

func tablesOf(rows []db.TablesRow) []Table {
	all := []Table{}
	for _, row := range rows {
		all = append(all, Table{
			Name: row.Name, HeapBytes: row.HeapBytes, IndexBytes: row.IndexBytes, OtherBytes: row.TotalBytes - row.HeapBytes - row.IndexBytes,
			LiveRows: row.LiveRows, DeadRows: row.DeadRows,
		})
	}
	return all
}
