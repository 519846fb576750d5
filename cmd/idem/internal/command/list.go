package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/txn"
)

// limitFlag has the flag --limit of the commands that print a list.
type limitFlag struct {
	Limit int `default:"50" help:"Maximum number of rows, up to 10000. Default: ${default}."`
}

// fullFlag has the flag --full of the commands that print keys. Without it, keys are abridged.
type fullFlag struct {
	Full bool `help:"Show whole keys."`
}

// afterFlag has the flag --after of the lists that a second command can continue.
type afterFlag struct {
	After string `placeholder:"MARK" help:"Continue after this mark, which the end of a list prints."`
}

// table describes how rows of type T are printed: in a list, in the preview of a change, and in a
// section of a report.
type table[T any] struct {
	none    string // printed if there are no rows
	columns []page.Column
	row     func(p *page.Page, r *T) []string
}

// print writes the rows, or the text t.none if there are no rows.
func (t *table[T]) print(p *page.Page, rows []T) {
	if len(rows) == 0 {
		p.Printf("%s\n", t.none)
		return
	}
	var cells [][]string
	for i := range rows {
		cells = append(cells, t.row(p, &rows[i]))
	}
	p.Table(t.columns, cells)
}

// showList calls read and prints the rows. With --json it prints a JSON document that has the rows
// in a field; name is the name of this field. It asks for one row more than limit, to learn whether
// the list continues. The function mark returns the value of --after that continues the list behind
// a row. mark is nil for a list that cannot be continued.
func showList[T any](
	s *session, limit int, name string, t *table[T], mark func(*T) string, read func(ctx context.Context, tx pgx.Tx, limit int) ([]T, error),
) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	rows, err := queryTx(s, func(ctx context.Context, tx pgx.Tx) ([]T, error) { return read(ctx, tx, limit+1) })
	if err != nil {
		return err
	}
	more, next := len(rows) > limit, ""
	if more {
		if rows = rows[:limit]; mark != nil {
			next = mark(&rows[limit-1])
		}
	}
	document := map[string]any{name: rows, "more": more}
	if next != "" {
		document["next"] = next
	}
	return s.show(document, func(p *page.Page) {
		t.print(p, rows)
		switch {
		case next != "":
			p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: --after '%s' (%d shown)", next, len(rows))))
		case more:
			p.Printf("%s\n", p.Dim(fmt.Sprintf("there are more: raise --limit, or add a filter (%d shown)", len(rows))))
		}
	})
}

// checkLimit fails if a --limit is out of range.
func checkLimit(limit int) error {
	if limit < 1 || limit > 10000 {
		return usage("--limit must be between 1 and 10000")
	}
	return nil
}

// queryTx calls query in a transaction whose statements are limited by --timeout, and returns the
// result.
func queryTx[T any](s *session, query func(context.Context, pgx.Tx) (T, error)) (result T, err error) {
	err = s.inTx(func(ctx context.Context, tx pgx.Tx) (err error) {
		result, err = query(ctx, tx)
		return err
	})
	return result, err
}

// encodeMark returns the value of --after that continues a list behind a row. names are the row's
// values in the columns by which the list is sorted. The list can continue even if the row was
// deleted meanwhile.
func encodeMark(names ...string) string {
	for i := range names {
		names[i] = url.PathEscape(names[i])
	}
	return strings.Join(names, "/")
}

// decodeMark is the inverse of encodeMark for n names. For an empty mark it returns n empty names.
func decodeMark(mark string, n int) ([]string, error) {
	if mark == "" {
		return make([]string, n), nil
	}
	names := strings.Split(mark, "/")
	ok := len(names) == n
	for i := range names {
		var err error
		names[i], err = url.PathUnescape(names[i])
		ok = ok && err == nil
	}
	if !ok {
		return nil, usage("--after must be a mark that the end of a list printed")
	}
	return names, nil
}

type listCommand struct {
	Scope     string `placeholder:"PREFIX" help:"Scopes with this prefix."`
	Key       string `placeholder:"KEY" help:"Records of this key, in any scope."`
	Execution string `aliases:"operation" placeholder:"ID" help:"The record of this execution id, as in a log."`
	State     string `enum:",completed,failed,running,processing,expired" default:"" placeholder:"STATE" help:"completed, failed, running, processing or expired. All but the last are live."`
	Older     span   `placeholder:"SPAN" help:"Claimed longer ago than this."`
	limitFlag
	afterFlag
	fullFlag
}

// recordTable shows records without their responses.
var recordTable = table[record.Record]{
	"no records",
	page.Columns("SCOPE", "KEY", "STATE", ">STATUS", ">AGE", "EXPIRES", ">RESPONSE", "EXECUTION ID"),
	func(p *page.Page, r *record.Record) []string {
		return []string{page.Safe(r.Scope), page.Safe(r.Key), stateOf(p, r), statusOf(r), page.Age(r.Now.Sub(r.CreatedAt)), expires(r),
			page.Bytes(r.HeaderBytes + r.BodyBytes), r.ExecutionID}
	},
}

// Run lists records.
func (c *listCommand) Run(s *session) error {
	after, err := decodeMark(c.After, 2)
	if err != nil {
		return err
	}
	filter := record.Filter{ScopePrefix: c.Scope, Key: c.Key, ExecutionID: c.Execution, State: c.State, Older: time.Duration(c.Older)}
	if c.After != "" {
		filter.After = &record.Name{Scope: after[0], Key: after[1]}
	}
	mark := func(r *record.Record) string { return encodeMark(r.Scope, r.Key) }
	if !c.Full {
		mark = nil // no mark: it would contain the whole key
	}
	err = showList(s, c.Limit, "records", &recordTable, mark, func(ctx context.Context, tx pgx.Tx, limit int) ([]record.Record, error) {
		filter.Limit = limit
		found, err := record.List(ctx, tx, filter)
		for i := range found {
			abridge(&found[i].Key, c.Full)
		}
		return found, err
	})
	// 57014 is query_canceled: --timeout has ended the query. --scope helps most, because it is the
	// only filter for which the list uses the index.
	if txn.HasCode(err, "57014") && c.Scope == "" {
		return errors.New("--timeout ended the list: without --scope it may scan all records; add --scope, or raise --timeout")
	}
	return err
}
