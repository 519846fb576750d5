package result

import "github.com/idem-go/idem/lab/bench/measure"

// P50s are the ratios of the median latencies of two entries, round by round; none if one of them is not there.
func (c *Cell) P50s(of, to string) []float64 {
	return c.ratios(of, to, func(r Round) float64 { return r.P50 })
}

// Throughputs are the ratios of the throughputs of two entries, round by round.
func (c *Cell) Throughputs(of, to string) []float64 {
	return c.ratios(of, to, func(r Round) float64 { return r.PerSecond })
}

// Processors are the ratios of the processor times of two entries, round by round.
func (c *Cell) Processors(of, to string) []float64 {
	return c.ratios(of, to, func(r Round) float64 { return r.Processor })
}

func (c *Cell) ratios(of, to string, figure func(Round) float64) []float64 {
	a, b := c.Entry(of), c.Entry(to)
	if a == nil || b == nil {
		return nil
	}
	return measure.Ratios(a.figures(figure), b.figures(figure))
}

// PerSecond are the throughputs of the rounds.
func (e *Entry) PerSecond() []float64 {
	return e.figures(func(r Round) float64 { return r.PerSecond })
}

func (e *Entry) figures(figure func(Round) float64) []float64 {
	var all []float64
	for _, r := range e.Rounds {
		all = append(all, figure(r))
	}
	return all
}
