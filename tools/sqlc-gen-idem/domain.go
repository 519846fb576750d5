package main

import (
	"fmt"
	"strings"
)

// domain resolves the Go types of the parameters and columns of one query.
type domain struct {
	query, file string
	options     *Options
	in, out     []*part
}

// part is a field of a request or row that holds several parameters or columns.
type part struct {
	field  string            // the declaration of the field in Go
	values map[string]string // selectors within the field, by SQL name
	used   bool              // a parameter or column of the query is in this part
}

// parts parses the list of an @in or @out annotation. It fails for a part that sqlc.yaml does not
// declare.
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

// partOf returns the selector of a SQL name, such as Key.Name, if one of the parts holds it.
func partOf(parts []*part, name string) (string, bool) {
	for _, p := range parts {
		if in, ok := p.values[name]; ok {
			p.used = true
			return fieldName(p.field) + "." + in, true
		}
	}
	return "", false
}

// conversion returns the conversion of a parameter or column, or nil if sqlc.yaml has none. The
// most specific name wins: the name in this query, then in this file, then anywhere. A type that is
// not among the conversions is a string type.
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

// unused returns an error for a part that holds no parameter or column of the query. A caller would
// otherwise set a field that is never sent, or read a field that is never set.
func (d *domain) unused() error {
	for _, p := range append(d.in, d.out...) {
		if !p.used {
			return fmt.Errorf("it has no parameter or column of its part %q", p.field)
		}
	}
	return nil
}

// param sets the Go type and the value expression of a parameter.
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

// column sets the Go type and the read expression of a column. The expression for a text passes the
// value of the previous row, so that an equal text is not copied.
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

// leavePart shortens the selectors of a row that consists of one part only.
func (f *Field) leavePart(part string) {
	f.Target = strings.Replace(f.Target, "r."+fieldName(part)+".", "r.", 1)
	f.Value = strings.Replace(f.Value, "r."+fieldName(part)+".", "r.", 1)
}

// fieldName returns the name of a declared field. The name of an embedded field is that of its
// type.
func fieldName(declared string) string {
	name, _, _ := strings.Cut(declared, " ")
	return strings.TrimPrefix(name, "*")
}

func typeOfField(declared string) string { return declared[strings.LastIndex(declared, " ")+1:] }
