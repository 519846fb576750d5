package main

import (
	"math"
	"time"
)

// Load describes the requests of a service.
type Load struct {
	First    float64       // requests per second whose key is new
	Replays  float64       // repeated requests per second
	TTL      time.Duration // how long records are kept
	Names    float64       // length of scope and key together, in bytes
	Response float64       // length of header and body, in bytes
	Own      float64       // processor time of the service's own transaction in a first run, in µs
	Held     time.Duration // how long the transaction of a first run holds its connection
}

// Needs is what a load needs of Postgres. The space of the service's own tables is not included.
type Needs struct {
	Rows        float64
	Heap, Index float64 // bytes
	WAL         float64 // bytes per second
	Cores       float64 // busy cores of the server
	Connections float64
	Clusters    int // number of clusters with clusterCores cores each
}

// The constants of the model. TestModel_BoundsTheStoredBytes and TestModel_BoundsTheLoggedBytes
// check the bytes. make bench/profile measures the microseconds; the values here are from two cores
// of AMD EPYC.
const (
	heapFixed    = 248.0 // bytes of both row versions, from INSERT and UPDATE: a vacuum frees the first one later
	heapNames    = 2.6   // per byte of scope and key, which both row versions contain
	heapResponse = 1.05  // per byte of the response, which only the second row version contains; pages are not quite full
	indexFixed   = 16.0
	indexFill    = 1.75 // splits leave pages partly empty
	walFixed     = 457.0
	walNames     = 2.1
	walResponse  = 1.0

	firstRun     = 86.0 // µs of a first run beyond a plain transaction: 180.8 − 95.0
	replay       = 65.8 // µs of a replay
	largeTable   = 1.18 // factor for firstRun and replay if the table has ten million records
	purged       = 10.0 // µs to delete a record and to vacuum its row
	busy         = 0.5  // share of the cores that may be busy before latencies grow
	clusterCores = 16.0
	graceOfPurge = time.Hour
)

// needs computes what the load needs.
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
