package main

import (
	"math"
	"time"
)

// Load is what a service asks of idem.
type Load struct {
	First    float64       // requests a second that are seen for the first time
	Replays  float64       // and repetitions of these
	TTL      time.Duration // for which records are kept
	Names    float64       // bytes of scope and key together
	Response float64       // bytes of header and body
	Own      float64       // µs of the server's processors for the service's own statements of a first run, with its BEGIN and COMMIT
	Held     time.Duration // for which the transaction of a first run has its connection
}

// Needs is what that takes of Postgres, what the service's own tables take aside.
type Needs struct {
	Rows        float64
	Heap, Index float64 // bytes
	WAL         float64 // bytes a second
	Cores       float64 // that are busy, of the server
	Connections float64
	Clusters    int // of Cores16
}

// What the model rests on. Bytes are held by TestModelIsWhatPostgresStores and TestModelIsWhatPostgresLogs, microseconds are measured by make bench/profile on two cores of AMD EPYC.
const (
	heapFixed    = 248.0 // both versions of a row: the room of the first is used again when it is vacuumed
	heapNames    = 2.6   // a byte of a name is in both
	heapResponse = 1.05  // one of a response is in the second, and pages are not filled to the end
	indexFixed   = 16.0
	indexFill    = 1.75 // of pages that have split
	walFixed     = 457.0
	walNames     = 2.1
	walResponse  = 1.0

	firstRun     = 86.0 // µs of the server beyond a plain transaction: 180.8 less 95.0
	replay       = 65.8
	largeTable   = 1.18 // of both, with ten million records
	purged       = 10.0 // µs to delete a record later, and to vacuum it
	busy         = 0.5  // the share of the cores that may be busy for latencies to stay what they are
	clusterCores = 16.0
	graceOfPurge = time.Hour
)

// needs computes it.
func (l Load) needs() Needs {
	n := Needs{Rows: l.First * (l.TTL + graceOfPurge).Seconds()}
	n.Heap = n.Rows * heapOf(l.Names, l.Response)
	n.Index = n.Rows * indexOf(l.Names)
	n.WAL = l.First * walOf(l.Names, l.Response)
	n.Cores = (l.First*(l.Own+firstRun*largeTable+purged) + l.Replays*replay*largeTable) / 1e6
	n.Connections = math.Ceil(l.First * l.Held.Seconds() / busy)
	n.Clusters = max(1, int(math.Ceil(n.Cores/(clusterCores*busy))))
	return n
}

func heapOf(names, response float64) float64 {
	return heapFixed + heapNames*names + heapResponse*response
}

func indexOf(names float64) float64 { return (names + indexFixed) * indexFill }

func walOf(names, response float64) float64 { return walFixed + walNames*names + walResponse*response }
