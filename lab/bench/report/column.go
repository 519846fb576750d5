package report

import "github.com/idem-go/idem/lab/bench/result"

// column is a column of a table of ratios: a point of the plan under a heading.
type column struct {
	heading string
	point   result.Point
}

func first(business, leg string, clients int) result.Point {
	return result.Point{Work: result.First, Business: business, Leg: leg, Clients: clients}
}

func replay(leg string, clients int) result.Point {
	return result.Point{Work: result.Replay, Business: result.Insert, Leg: leg, Clients: clients}
}

func mixed(share float64) result.Point {
	return result.Point{Work: result.Mixed, Business: result.Realistic, Leg: result.Loopback, Clients: 8, Share: share}
}

func sized(work string, bytes int) result.Point {
	return result.Point{Work: work, Business: result.Insert, Leg: result.Loopback, Clients: 1, Response: bytes}
}
