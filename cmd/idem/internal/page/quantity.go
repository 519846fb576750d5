package page

import (
	"fmt"
	"strconv"
	"time"
)

// Age formats a duration with at most two units: a person compares ages, and does not compute with
// them.
func Age(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch day := 24 * time.Hour; {
	case d < time.Second:
		return fmt.Sprintf("%s%d ms", sign, d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%s%d s", sign, d/time.Second)
	case d < time.Hour:
		return sign + two(d, time.Minute, "min", time.Second, "s")
	case d < day:
		return sign + two(d, time.Hour, "h", time.Minute, "min")
	case d < 1000*day:
		return sign + two(d, day, "d", time.Hour, "h")
	default:
		return fmt.Sprintf("%s%d y", sign, d/(365*day))
	}
}

// two formats d in a large and a small unit. It omits the small unit if it is zero.
func two(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// Bytes formats a number of bytes with a decimal unit and two or three digits.
func Bytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	// The bounds 999.5 and 9.95 are those at which rounding would add a digit.
	value, unit := float64(n), -1
	for value >= 999.5 && unit < 4 {
		value /= 1000
		unit++
	}
	digits := 0
	if value < 9.95 {
		digits = 1
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + " " + []string{"kB", "MB", "GB", "TB", "PB"}[unit]
}

// Count formats a number with a comma between groups of three digits.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Time formats t in UTC, to the second. It returns "-" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

// Relative returns t relative to now, such as "3 min ago" or "in 3 min".
func Relative(t, now time.Time) string {
	if t.After(now) {
		return "in " + Age(t.Sub(now))
	}
	return Age(now.Sub(t)) + " ago"
}

// AtLeast formats a count of a query that stops counting at most.
func AtLeast(n, most int64) string {
	if n >= most {
		return Count(n) + " or more"
	}
	return Count(n)
}

// Clipped cuts text after limit characters.
func Clipped(text string, limit int) string {
	for at := range text {
		if limit--; limit < 0 {
			return text[:at] + "…"
		}
	}
	return text
}
