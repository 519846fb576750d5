package main

import (
	"fmt"
	"strings"
)

// domain finds the Go types for the parameters and columns of one query, according to the options
// in sqlc.yaml.
type domain struct {
	query, file string
	options     *Options
	in, out     []*part
}

// part is a field of a generated struct that contains several parameters (in a request) or several
// columns (in a row).
type part struct {
	field  string            // the Go declaration of the field
	values map[string]string // Go selectors inside the field, by the SQL names of the parameters or columns
	used   bool              // a parameter or column of the query is in this part
}

// parts parses the list in an @in or @out annotation of a query. It fails if the list names a part
// that sqlc.yaml does not declare.
func (d *domain) parts(list string) (declared []string, parts []*part, err error) {
	for _, field := range strings.Split(list, ",") {
		field = strings.TrimSpace(field)
		values, ok := d.options.Parts[field]
		if !ok {
			return nil, nil, fmt.Errorf("sqlc.yaml has no part %q", field)
		}
		d.options.use("part", field)
		p := &part{field: field, values: map[string]string{}}
		for _, value := range strings.Fields(values) {
			name, in, found := strings.Cut(value, "=")
			if !found {
				in = exported(name)
			}
			p.values[name] = in
		}
		declared, parts = append(declared, field), append(parts, p)
	}
	return declared, parts, nil
}

// partOf returns the Go selector, such as Key.Name, for the parameter or column called name, if one
// of parts contains it.
func partOf(parts []*part, name string) (string, bool) {
	for _, p := range parts {
		if in, ok := p.values[name]; ok {
			p.used = true
			return fieldName(p.field) + "." + in, true
		}
	}
	return "", false
}

// conversion returns the conversion of a parameter or column, or nil if the types in sqlc.yaml do
// not contain its name. If they contain the name several times, the most specific entry wins:
// <query>.<name>, then <file>.<name>, then <name>. A Go type without an entry in the conversions
// must have the underlying type string, because the generated code converts it from and to string.
func (d *domain) conversion(name string) *Conversion {
	for _, known := range []string{d.query + "." + name, d.file + "." + name, name} {
		label, ok := d.options.Types[known]
		if !ok {
			continue
		}
		d.options.use("type", known)
		if c, ok := d.options.Conversions[label]; ok {
			d.options.use("conversion", label)
			return &c
		}
		return &Conversion{Go: label, Write: "string(%s)", Read: label + "(%s)", named: true}
	}
	return nil
}

// unused returns an error if a part, which is a field of a generated struct, contains no parameter
// or column of the query. Callers could set a value in such a part that is never sent, or read a
// value that is never set.
func (d *domain) unused() error {
	for _, p := range append(d.in, d.out...) {
		if !p.used {
			return fmt.Errorf("it has no parameter or column of its part %q", p.field)
		}
	}
	return nil
}

// param sets the Go type of the parameter f, and the Go expression that computes the value to send.
func (d *domain) param(f *Field, c Column) error {
	value, inPart := partOf(d.in, c.Name)
	if !inPart {
		value = f.Name
	}
	f.Value, f.inPart = "q."+value, inPart
	to := d.conversion(c.Name)
	if to == nil || c.IsArray {
		return nil
	}
	if to.named && f.name != "string" {
		return fmt.Errorf("%s is no text: %s has to be one of the conversions", c.Name, to.Go)
	}
	f.Type = to.Go
	convert := to.Write
	if f.Nullable {
		if convert = to.Null; convert == "" {
			return fmt.Errorf("%s may be NULL, and the conversion of %s does not say which value is", c.Name, to.Go)
		}
	}
	if convert != "" {
		f.Value = strings.ReplaceAll(convert, "%s", f.Value)
	}
	return nil
}

// column sets the Go type of the column f, and the Go expression that reads its value. The
// expression for a text column passes the value of the previous row, so that the reader can reuse
// an equal text instead of copying it.
func (d *domain) column(f *Field, c Column) error {
	target, inPart := partOf(d.out, c.Name)
	f.inPart = inPart
	if !inPart {
		target = f.Name
	}
	f.Target = "r." + target
	to := d.conversion(c.Name)
	if to != nil {
		f.Type = to.Go
	}
	switch {
	case to != nil && to.named && f.name != "string":
		return fmt.Errorf("%s is no text: %s has to be one of the conversions", c.Name, to.Go)
	case to != nil && to.named:
		f.Value = fmt.Sprintf(to.Read, "row.Text(string("+f.Target+"))")
	case f.row == "Text" && f.Type == "string":
		f.Value = "row.Text(" + f.Target + ")"
	default:
		f.Value = "row." + f.row + "()"
		if to != nil && to.Read != "" {
			f.Value = strings.ReplaceAll(to.Read, "%s", f.Value)
		}
	}
	return nil
}

// leavePart removes the selector of a part from the selectors of a column. It is used if a row
// consists of a single part, because the row then has the type of the part.
func (f *Field) leavePart(part string) {
	f.Target = strings.Replace(f.Target, "r."+fieldName(part)+".", "r.", 1)
	f.Value = strings.Replace(f.Value, "r."+fieldName(part)+".", "r.", 1)
}

// fieldName returns the name of the field that is declared in the Go declaration. An embedded field
// has the name of its type.
func fieldName(declared string) string {
	name, _, _ := strings.Cut(declared, " ")
	return strings.TrimPrefix(name, "*")
}

func typeOfField(declared string) string { return declared[strings.LastIndex(declared, " ")+1:] }
