// Package report writes the page with the results of the benchmark, docs/benchmarks.md.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/idem-go/idem/lab/bench/result"
)

//go:embed page.md.tmpl
var page string

// Write writes the page with the results r to the file benchmarks.md in the directory dir.
func Write(dir string, r *result.Results) error {
	text, err := render(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), text, 0o644)
}

func render(r *result.Results) ([]byte, error) {
	functions := template.FuncMap{
		"table": func(columns ...string) (string, error) { return table(r, columns) },
		"taken": func(suite string) (string, error) { return taken(r.Run(suite)) },
		"figure": func(scenario, contestant, figure string) string {
			return show(figure, r.Scenario(scenario).Figure(contestant, figure))
		},
	}
	parsed, err := template.New("page").Funcs(functions).Parse(page)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, nil)
	return text.Bytes(), err
}

// taken returns a sentence that says when, where and at which commit a suite was run.
func taken(run *result.Run) (string, error) {
	if run == nil {
		return "Not measured yet.", nil
	}
	text := fmt.Sprintf("Taken on %s, in %s, on %s", run.Taken.Format("2 January 2006, 15:04 UTC"), run.Took, run.Machine)
	if run.Commit != "" {
		text += ", of commit " + run.Commit
	}
	return text + "; load " + run.Load + ".", nil
}

// table returns a Markdown table. Each element of columns has the form "heading|scenario|figure".
// The table has a row for each contestant that has a figure in at least one column.
func table(r *result.Results, columns []string) (string, error) {
	type column struct {
		*result.Scenario
		figure string
	}
	header, rule, all := "| |", "|---|", []column{}
	var names []string
	for _, text := range columns {
		parts := strings.Split(text, "|")
		if len(parts) != 3 {
			return "", fmt.Errorf("report: column %q: want heading|scenario|figure", text)
		}
		header += " " + parts[0] + " |"
		rule += "--:|"
		c := column{r.Scenario(parts[1]), parts[2]}
		all = append(all, c)
		if c.Scenario == nil {
			continue
		}
		for _, e := range c.Entries {
			if e.Figures[c.figure] != nil && !slices.Contains(names, e.Name) {
				names = append(names, e.Name)
			}
		}
	}
	if len(names) == 0 {
		return "Not measured yet.\n", nil
	}
	text := header + "\n" + rule + "\n"
	for _, name := range names {
		text += "| " + name + " |"
		for _, c := range all {
			text += " " + show(c.figure, c.Figure(name, c.figure)) + " |"
		}
		text += "\n"
	}
	return text, nil
}

// show formats a figure. A ratio is shown as its median with minimum and maximum, and any other
// figure as its median.
func show(figure string, s result.Spread) string {
	switch {
	case len(s) == 0:
		return "-"
	case strings.Contains(figure, "/") && len(s) == 3:
		return fmt.Sprintf("%.2f (%.2f–%.2f)", s[0], s[1], s[2])
	}
	return number(s[0])
}

var thousands = regexp.MustCompile(`(\d)(\d{3})($|,)`)

// number formats a value with about three significant digits. Values of 1,000 or more are written
// in full, with commas.
func number(value float64) string {
	if value < 100 {
		precision := 1
		if value < 10 {
			precision = 2
		}
		text := fmt.Sprintf("%.*f", precision, value)
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	text := fmt.Sprintf("%.0f", math.Round(value))
	for thousands.MatchString(text) {
		text = thousands.ReplaceAllString(text, "$1,$2$3")
	}
	return text
}
