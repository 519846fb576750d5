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

// limitFlag is the flag of each list for its maximum length.
type limitFlag struct {
	Limit int `default:"50" help:"Maximum number of rows, up to 10000. Default: ${default}."`
}

// fullFlag is the flag of each command that prints keys.
type fullFlag struct {
	Full bool `help:"Show whole keys."`
}

// afterFlag is the flag of each list that a further call can continue.
type afterFlag struct {
	After string `placeholder:"MARK" help:"Continue after this mark, which the end of a list prints."`
}

// table says how rows are printed. A list, a preview and a section of a report use it in the same
// way.
type table[T any] struct {
	none    string // printed if there are no rows
	columns []page.Column
	row     func(p *page.Page, r *T) []string
}

// print writes the rows, or the text for an empty list.
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

// showList prints the rows that read returns, or a JSON document that has them under name. It reads
// one row more than limit, to know whether there are more. mark returns the mark of a row for
// --after; it may be nil or return "".
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

// queryTx runs a query in a transaction with --timeout, and returns its result.
func queryTx[T any](s *session, query func(context.Context, pgx.Tx) (T, error)) (result T, err error) {
	err = s.inTx(func(ctx context.Context, tx pgx.Tx) (err error) {
		result, err = query(ctx, tx)
		return err
	})
	return result, err
}

// encodeMark returns the mark for a row with these names. The names are the columns of the sort
// order: a list continues behind the mark even if its row was deleted meanwhile.
func encodeMark(names ...string) string {
	for i := range names {
		names[i] = url.PathEscape(names[i])
	}
	return strings.Join(names, "/")
}

// decodeMark is the inverse of encodeMark for n names. It returns empty names for an empty mark.
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
		mark = nil // the key is abridged
	}
	err = showList(s, c.Limit, "records", &recordTable, mark, func(ctx context.Context, tx pgx.Tx, limit int) ([]record.Record, error) {
		filter.Limit = limit
		found, err := record.List(ctx, tx, filter)
		for i := range found {
			abridge(&found[i].Key, c.Full)
		}
		return found, err
	})
	// 57014 is query_canceled. The general advice for it names --scope, which matters most here.
	if txn.HasCode(err, "57014") && c.Scope == "" {
		return errors.New("--timeout ended the list: without --scope it may scan all records; add --scope, or raise --timeout")
	}
	return err
}
