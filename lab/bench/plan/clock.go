package plan

import (
	"fmt"
	"time"
)

// clock tells how long is left, from what was planned and how the plan has held so far.
type clock struct {
	planned, done, spent time.Duration
}

func (c *clock) add(cost time.Duration)  { c.planned += cost }
func (c *clock) skip(cost time.Duration) { c.planned -= cost }

func (c *clock) took(cost, real time.Duration) {
	c.done += cost
	c.spent += real
}

func (c *clock) left() string {
	rest := c.planned - c.done
	if c.done > 0 {
		rest = time.Duration(float64(rest) * float64(c.spent) / float64(c.done))
	}
	return fmt.Sprintf("%2d:%02d left", int(rest.Minutes()), int(rest.Seconds())%60)
}
