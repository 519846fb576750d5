package main

import (
	"fmt"
	"strings"
)

// domain says which Go types the parameters and columns of one query have, where those of its SQL types are not meant.
type domain struct {
	query, file string
	options     *Options
	in, out     []part
}

// part is a field of a request, or of a row, that has several parameters, or columns.
type part struct {
	field  string            // as Go declares it
	values map[string]string // by the name in SQL, how Go finds the value in the field
}

// parts returns the parts that a comment names, and their declarations.
func (d *domain) parts(list string) (declared []string, parts []part, err error) {
	for _, field := range strings.Split(list, ",") {
		field = strings.TrimSpace(field)
		values, ok := d.options.Parts[field]
		if !ok {
			return nil, nil, fmt.Errorf("sqlc.yaml has no part %q", field)
		}
		p := part{field: field, values: map[string]string{}}
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

// partOf returns how Go finds the value of a name in one of the parts.
func partOf(parts []part, name string) (string, bool) {
	for _, p := range parts {
		if in, ok := p.values[name]; ok {
			return fieldName(p.field) + "." + in, true
		}
	}
	return "", false
}

// conversion returns the entry of sqlc.yaml for a parameter or column, nil if it has none.
func (d *domain) conversion(name string) *Conversion {
	for _, known := range []string{d.query + "." + name, d.file + "." + name, name} {
		label, ok := d.options.Types[known]
		if !ok {
			continue
		}
		if c, ok := d.options.Conversions[label]; ok {
			return &c
		}
		return &Conversion{Go: label, Write: "string(%s)", Read: label + "(%s)", named: true}
	}
	return nil
}

// param gives a parameter its Go type and its value.
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
	f.Type = to.Go
	convert := to.Write
	if f.Nullable {
		if convert = to.Null; convert == "" {
			return fmt.Errorf("%s may be NULL, and the conversion of %s does not say which value is", c.Name, to.Go)
		}
	}
	if convert != "" {
		f.Value = fmt.Sprintf(convert, f.Value)
	}
	return nil
}

// column gives a column its Go type, and says how it is read. A text that is as the one of the row before is not copied.
func (d *domain) column(f *Field, c Column) {
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
}

// leavePart is for a column of a row that is the part itself.
func (f *Field) leavePart(part string) {
	f.Target = strings.Replace(f.Target, "r."+fieldName(part)+".", "r.", 1)
	f.Value = strings.Replace(f.Value, "r."+fieldName(part)+".", "r.", 1)
}

// fieldName returns the name of a field as Go declares it, which is that of its type if it is embedded.
func fieldName(declared string) string {
	name, _, _ := strings.Cut(declared, " ")
	return strings.TrimPrefix(name, "*")
}

func typeOfField(declared string) string { return declared[strings.LastIndex(declared, " ")+1:] }
