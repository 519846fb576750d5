package db

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/roundtrip"
)

// The generated code calls these functions to encode parameters and to decode columns. sqlc.yaml
// says where.

// orNull returns nil, which is NULL, for an empty text.
func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// orNullNumber returns nil, which is NULL, for 0.
func orNullNumber(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// since1970 returns the duration between 1970 and the given time. For the zero time it returns nil,
// which becomes NULL. Requests send a time as such an interval. The settings of a session can
// change how the server reads a timestamp, but not how it reads an interval.
func since1970(at time.Time) *time.Duration {
	if at.IsZero() {
		return nil
	}
	since := at.Sub(time.Unix(0, 0))
	return &since
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func microseconds(list []time.Duration) string {
	all := make([]int64, len(list))
	for i, d := range list {
		all[i] = d.Microseconds()
	}
	return numbers(all)
}

func hashOf(stored []byte) (hash [32]byte) {
	copy(hash[:], stored)
	return hash
}

// listed parses numbers that are separated by commas.
func listed(text string) []int {
	var all []int
	for each := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(each); err == nil {
			all = append(all, n)
		}
	}
	return all
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func readTopics(row *roundtrip.Row) (topics []string) {
	row.Fail(json.Unmarshal([]byte(row.Text()), &topics))
	return topics
}

func readHeaders(row *roundtrip.Row) map[string]string {
	headers, err := ReadHeaders(row.Text())
	row.Fail(err)
	return headers
}
