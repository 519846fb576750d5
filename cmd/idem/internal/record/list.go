package record

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Filter selects records for List. An empty field selects all.
type Filter struct {
	ScopePrefix string
	After       *Name // only records after this one
	State       string
	Key         string // in any scope
	ExecutionID string
	Older       time.Duration
	Limit       int
}

// Name identifies a record.
type Name struct{ Scope, Key string }

// List returns records in the order of scope and key. That is the order of the primary key, so
// Limit ends the scan early, and ScopePrefix is a range of the index. The other fields of f filter
// row by row.
func List(ctx context.Context, tx pgx.Tx, f Filter) ([]Record, error) {
	where, args := f.where([]any{false})
	query := fmt.Sprintf("SELECT %s FROM idem.records%s ORDER BY scope, key LIMIT %d", columns, where, f.Limit)
	rows, _ := tx.Query(ctx, query, args...) // CollectRows returns the error
	return pgx.CollectRows(rows, scan)
}

// where returns the WHERE clause for f, and args with the values of f appended. Each "?" in a
// condition becomes the number of the next argument.
func (f Filter) where(args []any) (string, []any) {
	var conditions []string
	add := func(condition string, values ...any) {
		for _, value := range values {
			args = append(args, value)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		conditions = append(conditions, condition)
	}
	if f.ScopePrefix != "" {
		add("scope >= ?", f.ScopePrefix)
		if end := afterAll(f.ScopePrefix); end != "" {
			add("scope < ?", end)
		}
	}
	if f.After != nil {
		add("(scope, key) > (?, ?)", f.After.Scope, f.After.Key)
	}
	if f.Key != "" {
		add("key = ?", f.Key)
	}
	if f.ExecutionID != "" {
		add("execution_id = ?::text::uuid", f.ExecutionID)
	}
	switch f.State {
	case "":
	case Expired:
		add("expires_at <= clock_timestamp()")
	default:
		add("state = ? AND expires_at > clock_timestamp()", f.State)
	}
	if f.Older > 0 {
		add("created_at < clock_timestamp() - ?::text::interval", fmt.Sprintf("%d microseconds", f.Older.Microseconds()))
	}
	if conditions == nil {
		return "", args
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// afterAll returns the smallest string, in byte order, that is greater than all strings with the
// prefix. It increments the last rune that can be incremented, and drops the runes after it. It
// returns "" if there is no such string.
func afterAll(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		next := runes[i] + 1
		// U+D800 to U+DFFF are surrogates, which UTF-8 cannot encode.
		if next == 0xd800 {
			next = 0xe000
		}
		if utf8.ValidRune(next) {
			return string(runes[:i]) + string(next)
		}
	}
	return ""
}
