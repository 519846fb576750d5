// Command scale computes the resources of Postgres that a load needs, by the model of
// docs/scale.md.
//
//	go run ./lab/scale -first 500 -ttl 24h -response 400 -own 300
//	go run ./lab/scale -table
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	var l Load
	flag.Float64Var(&l.First, "first", 100, "first runs per second: requests whose key is new")
	flag.Float64Var(&l.Replays, "replays", 0, "replays per second: repeated requests")
	flag.DurationVar(&l.TTL, "ttl", 24*time.Hour, "how long records are kept")
	flag.Float64Var(&l.Names, "names", 45, "length of scope and key together, in bytes")
	flag.Float64Var(&l.Response, "response", 200, "length of header and body of a response, in bytes")
	flag.Float64Var(&l.Own, "own", 200, "processor time of the server for the service's own transaction, in microseconds")
	flag.DurationVar(&l.Held, "held", 5*time.Millisecond, "how long a transaction holds its connection")
	table := flag.Bool("table", false, "print the table of docs/scale.md")
	flag.Parse()
	if *table {
		printTable(os.Stdout)
		return
	}
	n := l.needs()
	fmt.Printf("rows %.0f\nheap %s\nindex %s\nlog %s a second, %s a day\nbusy cores %.2f\nconnections %.0f\nclusters of %.0f cores %d\n",
		n.Rows, size(n.Heap), size(n.Index), size(n.WAL), size(n.WAL*86400), n.Cores, n.Connections, clusterCores, n.Clusters)
}

// loads returns the rows of the table. The transaction of a first run takes 200 µs of the server
// and holds its connection for 5 ms.
func loads() (all []Load) {
	for _, first := range []float64{10, 100, 1000, 10_000, 50_000} {
		for _, ttl := range []time.Duration{time.Hour, 24 * time.Hour} {
			all = append(all, Load{
				First: first, Replays: first / 100, TTL: ttl, Names: 45, Response: 200, Own: 200, Held: 5 * time.Millisecond,
			})
		}
	}
	return all
}

func printTable(w io.Writer) {
	fmt.Fprintln(w, "| first runs a second | TTL | rows | heap | index | log a day | cores busy | connections | clusters |")
	fmt.Fprintln(w, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, l := range loads() {
		n := l.needs()
		fmt.Fprintf(w, "| %.0f | %.0f h | %s | %s | %s | %s | %.2f | %.0f | %d |\n",
			l.First, l.TTL.Hours(), number(n.Rows), size(n.Heap), size(n.Index), size(n.WAL*86400), n.Cores, n.Connections, n.Clusters)
	}
}

func number(n float64) string {
	if n >= 1e6 {
		return fmt.Sprintf("%.1f million", n/1e6)
	}
	return fmt.Sprintf("%.0f", n)
}

func size(n float64) string {
	switch {
	case n >= 1e12:
		return fmt.Sprintf("%.1f TB", n/1e12)
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", n/1e6)
	}
	return fmt.Sprintf("%.0f kB", n/1e3)
}
