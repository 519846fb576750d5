package main

import (
	"fmt"
	"strings"

	"github.com/idem-go/idem/tools/qualify"
)

// Statement is a query, prepared for the templates of the generated code. The generated code
// declares a struct for it, the request.
type Statement struct {
	Name, Cmd, Text string
	Type            string // name of the request's struct: Name, or its unexported form if Wrapped
	Doc             []string
	Params, Columns []Field
	Parts           []string // declarations of the request's fields that contain several parameters
	RowParts        []string // declarations of the row's fields that contain several columns
	RowType         string
	SharesRow       bool   // another statement declares RowType
	Prepared        string // the name of the prepared statement; "" if connections do not prepare it
	Replan, ByPgx   bool
	Wrapped         bool // the request is unexported, and a hand-written type contains it
	file            string
}

// Field describes the generated code for a parameter, or for a column of a result.
type Field struct {
	// Name is the Go name of the field. It is empty for a column that is not read.
	Name string
	Type string
	// Value is a Go expression. For a parameter, the expression computes the value to send from the
	// request q. For a column, it reads a value of type Type from the variable row.
	Value    string
	Target   string // for a column, the field to which its value is assigned, such as r.State
	Nullable bool
	inPart   bool
	goType
}

// Travels reports whether package roundtrip can send the statement together with others in one
// round trip. It cannot send arrays, so a statement with an array parameter needs pgx.
func (s *Statement) Travels() bool {
	for _, p := range s.Params {
		if p.values == "" {
			return false
		}
	}
	return true
}

// Receiver returns the receiver type of the generated methods. It is a pointer type, except for a
// statement without a result.
func (s *Statement) Receiver() string {
	if s.Cmd == ":exec" {
		return s.Type
	}
	return "*" + s.Type
}

// Read returns the columns that the generated code reads. A column named _ is not read.
func (s *Statement) Read() []Field {
	return fields(s.Columns, func(f *Field) bool { return f.Name != "" })
}

// OwnParams returns the parameters that are direct fields of the request. The others are inside of
// parts, which are fields that contain several parameters.
func (s *Statement) OwnParams() []Field {
	return fields(s.Params, func(f *Field) bool { return !f.inPart })
}

// OwnRead returns the columns that are direct fields of the row. The others are inside of parts,
// which are fields that contain several columns, or are not read.
func (s *Statement) OwnRead() []Field {
	return fields(s.Columns, func(f *Field) bool { return f.Name != "" && !f.inPart })
}

func fields(all []Field, want func(*Field) bool) []Field {
	var found []Field
	for i := range all {
		if want(&all[i]) {
			found = append(found, all[i])
		}
	}
	return found
}

// DeclaresRow reports whether the generated code of this statement declares the type of its rows.
func (s *Statement) DeclaresRow() bool { return len(s.Read()) > 0 && !s.SharesRow && !s.rowIsPart() }

// rowIsPart reports whether a row consists of a single part, which is a field that contains several
// columns, and has no columns of its own. The type of the row is then the type of the part.
func (s *Statement) rowIsPart() bool { return len(s.RowParts) == 1 && len(s.OwnRead()) == 0 }

// RowField returns the declaration of the request's field that contains the row. The field is
// embedded, unless the query names the row type with @row.
func (s *Statement) RowField() string {
	switch {
	case s.rowIsPart():
		return s.RowParts[0]
	case !strings.EqualFold(s.RowType, s.Name+"Row"):
		return s.RowType + " " + s.RowType
	default:
		return s.RowType
	}
}

// Row returns the Go expression for the request's field that contains the row.
func (s *Statement) Row() string { return "q." + fieldName(s.RowField()) }

func (f Field) Param() string  { return f.param }
func (f Field) Format() string { return f.format }

// Add returns the name of the method of roundtrip.Values that adds the parameter to the values to
// send.
func (f Field) Add() string {
	if f.Nullable {
		return "Null" + f.values
	}
	return f.values
}

// newStatement converts a query of sqlc's request to a Statement.
func newStatement(q *Query, options *Options) (*Statement, error) {
	s := &Statement{Name: q.Name, Cmd: q.Cmd, file: q.Filename, Type: q.Name, RowType: q.Name + "Row"}
	domain, err := s.comment(q.Comments, options)
	if err != nil {
		return nil, err
	}
	types, err := s.params(q.Params, domain)
	if err != nil {
		return nil, err
	}
	if s.Text, err = qualify.Statement(q.Text, types); err != nil {
		return nil, err
	}
	// moments collects the indices of the timestamptz columns. Send marks these columns in the
	// text, because the simple protocol has to read them in a different way.
	var moments []int
	for i, column := range q.Columns {
		if q.Cmd == ":exec" || q.Cmd == ":execrows" { // these commands return no rows to read
			break
		}
		f, err := s.column(column, domain, options.Style)
		if err != nil {
			return nil, err
		}
		if f.goType.name == "time.Time" {
			moments = append(moments, i)
		}
		s.Columns = append(s.Columns, f)
	}
	if err := domain.unused(); err != nil {
		return nil, err
	}
	if s.rowIsPart() {
		s.RowType = typeOfField(s.RowParts[0])
		for i := range s.Columns {
			s.Columns[i].leavePart(s.RowParts[0])
		}
	}
	if s.Text, err = qualify.Send(s.Text, moments); err != nil {
		return nil, err
	}
	if strings.Contains(s.Text, "`") {
		return nil, fmt.Errorf("its text has a backquote, which Go's strings cannot have")
	}
	return s, s.check()
}

// comment parses the comment lines of a query. Lines that begin with @ are annotations for the
// plugin. The other lines become the doc comment.
func (s *Statement) comment(lines []string, options *Options) (*domain, error) {
	d := &domain{query: s.Name, file: strings.TrimSuffix(s.file, ".sql"), options: options}
	for _, line := range lines {
		text := strings.TrimSpace(line)
		word, rest, _ := strings.Cut(text, " ")
		var err error
		switch word {
		case "@prepared":
			s.Prepared = "idem_" + snake(s.Name)
		case "@replan":
			s.Replan = true
		case "@pgx":
			s.ByPgx = true
		case "@wrapped":
			s.Wrapped = true
		case "@row":
			s.RowType = rest
		case "@in":
			s.Parts, d.in, err = d.parts(rest)
		case "@out":
			s.RowParts, d.out, err = d.parts(rest)
		default:
			if strings.HasPrefix(word, "@") {
				return nil, fmt.Errorf("it has an unknown annotation %s", word)
			}
			s.Doc = append(s.Doc, text)
		}
		if err != nil {
			return nil, err
		}
	}
	if s.Wrapped {
		s.Type, s.RowType = unexported(s.Type), unexported(s.RowType)
	}
	return d, nil
}

// params converts the parameters to fields of s. It returns the SQL type of each parameter by its
// number.
func (s *Statement) params(params []Parameter, d *domain) (map[int]string, error) {
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
		if err := d.param(&f, p.Column); err != nil {
			return nil, err
		}
		s.Params = append(s.Params, f)
	}
	return types, nil
}

// column converts a column of the result to a Field. A column named _ gets no name, because it is
// not read.
func (s *Statement) column(c Column, d *domain, style string) (Field, error) {
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
	f := Field{Name: exported(c.Name), Type: t.name, goType: t}
	return f, d.column(&f, c)
}

// check returns an error if two fields of the generated struct have the same name, or if a field
// hides another field. It also fails if a parameter needs pgx and the query has no @pgx.
func (s *Statement) check() error {
	seen := map[string]bool{"Found": true, "Rows": true, "Affected": true, "Queue": true, "Read": true, "Args": true}
	for _, part := range s.Parts {
		seen[fieldName(part)] = true
	}
	for _, p := range s.OwnParams() {
		if p.Name == "" || seen[p.Name] {
			return fmt.Errorf("its parameter %q has no name of its own", p.Name)
		}
		seen[p.Name] = true
	}
	promotes := s.Cmd == ":one" && s.RowField() == s.RowType
	read := map[string]bool{}
	for _, c := range s.Read() {
		if read[c.Name] {
			return fmt.Errorf("two of its columns are named %s", c.Name)
		}
		if read[c.Name] = true; promotes && seen[c.Name] && !c.inPart {
			return fmt.Errorf("a parameter hides the column %s: one of the two needs another name", c.Name)
		}
	}
	if !s.Travels() && !s.ByPgx {
		return fmt.Errorf("it has a parameter that no round trip carries: say @pgx")
	}
	return nil
}
