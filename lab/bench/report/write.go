// Package report makes a document and its plots of the results of a run. The same results always make the same report.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/idem-go/idem/lab/bench/goal"
	"github.com/idem-go/idem/lab/bench/result"
)

//go:embed page.md.tmpl
var page string

//go:embed document.md.tmpl
var document string

// Write writes the page that is read first, and into a folder beside it that has its name the whole report and its plots.
func Write(path string, r *result.Results) error {
	folder := strings.TrimSuffix(path, filepath.Ext(path))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	drawn := map[string]bool{}
	for _, f := range figures(r) {
		picture, err := f.draw()
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, f.name+".png"), picture, 0o644); err != nil {
			return err
		}
		drawn[f.name] = true
	}
	for _, d := range []struct{ path, text, folder string }{
		{path, page, filepath.Base(folder) + "/"}, {filepath.Join(folder, "report.md"), document, ""},
	} {
		text, err := render(d.text, r, d.folder, drawn)
		if err != nil {
			return err
		}
		if err := os.WriteFile(d.path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render fills a document in. It links to the plots that were drawn, in the folder.
func render(document string, r *result.Results, folder string, drawn map[string]bool) ([]byte, error) {
	tmpl, err := template.New("document").Funcs(template.FuncMap{
		"plot": func(name, alt string) string {
			if !drawn[name] {
				return ""
			}
			return fmt.Sprintf("![%s](%s%s.png)\n", alt, folder, name)
		},
	}).Parse(document)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := tmpl.Execute(&text, view{r}); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// Summary writes the goals that were measured, for whoever has just waited for them, and what went wrong.
func Summary(w io.Writer, r *result.Results) error {
	var text strings.Builder
	for _, j := range goal.Judge(r) {
		if j.Verdict != goal.Absent || !r.Partial {
			fmt.Fprintf(&text, "%-12s %s, %s: %s\n", j.Verdict, j.Goal.Rule, j.Where, j.Measured)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&text, "note: %s\n", note)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
