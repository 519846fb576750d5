package main

import (
	"fmt"
	"strings"

	"github.com/idem-go/idem/tools/qualify"
)

// Statement is a query as the templates write it.
type Statement struct {
	Name, Cmd, Text string
	Doc             []string
	Params, Columns []Field
	Prepared        string // the name under which it is prepared, if it is
	Replan, ByPgx   bool
	file            string
}

// Field is a parameter, or a column of a result.
type Field struct {
	Name     string // in Go; empty if it is not read
	Type     string
	Nullable bool
	goType
}

// Travels reports whether the statement shares round trips: arrays need pgx.
func (s *Statement) Travels() bool {
	for _, p := range s.Params {
		if p.values == "" {
			return false
		}
	}
	return true
}

// Receiver is what has the methods: the value, if nothing is read into it.
func (s *Statement) Receiver() string {
	if s.Cmd == ":exec" {
		return s.Name
	}
	return "*" + s.Name
}

// Read are the columns that are read.
func (s *Statement) Read() []Field {
	var read []Field
	for _, c := range s.Columns {
		if c.Name != "" {
			read = append(read, c)
		}
	}
	return read
}

func (f Field) Param() string  { return f.param }
func (f Field) Format() string { return f.format }

// Add is the call that adds a parameter to the values of a statement.
func (f Field) Add() string {
	if f.Nullable {
		return "Null" + f.values
	}
	return f.values
}

// Reader is the expression that reads a column. A text that is as the one of the row before is not copied.
func (f Field) Reader() string {
	if f.row == "Text" {
		return "row.Text(r." + f.Name + ")"
	}
	return "row." + f.row + "()"
}

// newStatement makes a statement of a query.
func newStatement(q *Query, style string) (*Statement, error) {
	s := &Statement{Name: q.Name, Cmd: q.Cmd, file: q.Filename}
	s.comment(q.Comments)
	types, err := s.params(q.Params)
	if err != nil {
		return nil, err
	}
	if s.Text, err = qualify.Statement(q.Text, types); err != nil {
		return nil, err
	}
	var moments []int
	for i, column := range q.Columns {
		if q.Cmd == ":exec" || q.Cmd == ":execrows" { // whose rows are not read
			break
		}
		f, err := s.column(column, style)
		if err != nil {
			return nil, err
		}
		if f.Type == "time.Time" {
			moments = append(moments, i)
		}
		s.Columns = append(s.Columns, f)
	}
	if s.Text, err = qualify.Send(s.Text, moments); err != nil {
		return nil, err
	}
	if strings.Contains(s.Text, "`") {
		return nil, fmt.Errorf("its text has a backquote, which Go's strings cannot have")
	}
	return s, s.check()
}

// comment takes what is for the plugin out of the comment.
func (s *Statement) comment(lines []string) {
	for _, line := range lines {
		switch text := strings.TrimSpace(line); text {
		case "@prepared":
			s.Prepared = "idem_" + snake(s.Name)
		case "@replan":
			s.Replan = true
		case "@pgx":
			s.ByPgx = true
		default:
			s.Doc = append(s.Doc, text)
		}
	}
}

// params makes the parameters, and returns their types by number.
func (s *Statement) params(params []Parameter) (map[int]string, error) {
	types := map[int]string{}
	for _, p := range params {
		t, err := goTypeOf(p.Column)
		if err != nil {
			return nil, err
		}
		name, err := typeName(p.Column)
		if err != nil {
			return nil, err
		}
		if p.Column.IsArray {
			name += "[]"
		}
		types[p.Number] = name
		f := Field{Name: exported(p.Column.Name), Type: t.name, goType: t}
		if !p.Column.NotNull && !p.Column.IsArray && t.name != "[]byte" {
			f.Type, f.Nullable = "*"+t.name, true
		}
		s.Params = append(s.Params, f)
	}
	return types, nil
}

func (s *Statement) column(c Column, style string) (Field, error) {
	if strings.Trim(c.Name, "_") == "" {
		return Field{goType: goType{format: "Text"}}, nil
	}
	t, err := goTypeOf(c)
	switch {
	case err != nil:
		return Field{}, err
	case t.row == "" && style != "pgx":
		return Field{}, fmt.Errorf("the column %s is of type %s, which does not travel: cast it", c.Name, c.Type.Name)
	case !c.NotNull && !t.nulls:
		return Field{}, fmt.Errorf("the column %s may be NULL: say coalesce", c.Name)
	}
	return Field{Name: exported(c.Name), Type: t.name, goType: t}, nil
}

// check refuses names that would be taken for others.
func (s *Statement) check() error {
	seen := map[string]bool{"Found": true, "Row": true, "Rows": true, "Affected": true, "Queue": true, "Read": true, "Each": true, "Args": true}
	for _, p := range s.Params {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("its parameter %q has no name of its own", p.Name)
		}
		seen[p.Name] = true
	}
	seen = map[string]bool{}
	for _, c := range s.Read() {
		if seen[c.Name] {
			return fmt.Errorf("two of its columns are named %s", c.Name)
		}
		seen[c.Name] = true
	}
	if !s.Travels() && !s.ByPgx {
		return fmt.Errorf("it has a parameter that no round trip carries: say @pgx")
	}
	return nil
}
