package report

import (
	"bytes"
	"errors"
	"image"
	"image/draw"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/result/resulttest"
)

func fixture() *result.Results { return resulttest.Run() }

func TestReportShowsMissesAndNotes(t *testing.T) {
	t.Parallel()
	text, err := render(document, fixture(), "benchmarks/", map[string]bool{"hot-key": true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**missed**", "- pg18 was left out: none", "2 January 2030", `"SELECT, then INSERT" executed 10 requests, each sent by 32 callers at once, 99 times.`,
		"![The p99 of bystanders", "(benchmarks/hot-key.png)", "| idem.Do | 1.60 (1.50 to 1.70) | 1.04 (1.03 to 1.05) | 1.06 (1.00 to 1.06) |", "1,234",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the report", want)
		}
	}
	for _, unwanted := range []string{"NaN", "Inf", "<no value>", "%!"} {
		if strings.Contains(string(text), unwanted) {
			t.Errorf("%q is in the report", unwanted)
		}
	}
}

func TestReportHasTheSectionsOfOtherRunsWhereThereAreSome(t *testing.T) {
	t.Parallel()
	for heading, section := range map[string]func(*result.Results) *string{
		"## Where the time goes": func(r *result.Results) *string { return &r.Time },
		"## Operations":          func(r *result.Results) *string { return &r.Operations }, "## Messages": func(r *result.Results) *string { return &r.Messages },
	} {
		for _, said := range []string{"", "what it costs\n"} {
			r := fixture()
			*section(r) = said
			text, err := render(document, r, "benchmarks/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(text), heading); got != (said != "") || !strings.Contains(string(text), said) {
				t.Errorf("%s: %q: %v", heading, said, got)
			}
		}
	}
}

func TestPlotsAreDrawnAndLinked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := Write(path, fixture()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "benchmarks", "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	plots := glob(t, filepath.Join(filepath.Dir(path), "benchmarks", "*.png"))
	if len(plots) != 6 {
		t.Fatal(plots)
	}
	for _, plot := range plots {
		if !strings.Contains(string(text), "("+filepath.Base(plot)+")") {
			t.Errorf("%s is not linked to", plot)
		}
		if seen := picture(t, plot); dots(seen, blank(seen)) < 1000 {
			t.Errorf("%s is blank", plot)
		}
	}
}

func TestPlotShowsTheFigures(t *testing.T) {
	t.Parallel()
	other := fixture()
	other.Storms[0].StormP99 *= 2
	for name, changes := range map[string]bool{"hot-key": true, "wal": false} {
		if changed := dots(drawn(t, fixture(), name), drawn(t, other, name)) > 0; changed != changes {
			t.Errorf("%s: another figure changes it: %v, want %v", name, changed, changes)
		}
	}
}

// drawn draws one of the plots.
func drawn(t *testing.T, r *result.Results, name string) *image.RGBA {
	t.Helper()
	all := figures(r)
	picture, err := all[slices.IndexFunc(all, func(f figure) bool { return f.name == name })].draw()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, name, bytes.NewReader(picture))
}

// picture decodes a plot.
func picture(t *testing.T, path string) *image.RGBA {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	return decode(t, path, file)
}

func decode(t *testing.T, name string, encoded io.Reader) *image.RGBA {
	t.Helper()
	decoded, err := png.Decode(encoded)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	dots := image.NewRGBA(decoded.Bounds())
	draw.Draw(dots, dots.Rect, decoded, decoded.Bounds().Min, draw.Src)
	return dots
}

// dots counts those that look different in two pictures. One on an edge may be rounded otherwise by another processor.
func dots(a, b *image.RGBA) int {
	if a.Rect != b.Rect {
		return a.Rect.Dx() * a.Rect.Dy()
	}
	const slightly = 8
	different := 0
	for at := 0; at < len(a.Pix); at += 4 {
		for channel := range 3 {
			if x, y := a.Pix[at+channel], b.Pix[at+channel]; max(x, y)-min(x, y) > slightly {
				different++
				break
			}
		}
	}
	return different
}

// blank is a white picture of the same size.
func blank(like *image.RGBA) *image.RGBA {
	white := image.NewRGBA(like.Rect)
	draw.Draw(white, white.Rect, image.White, image.Point{}, draw.Src)
	return white
}

func TestReportOfAnEmptyRunIsPossible(t *testing.T) {
	t.Parallel()
	if err := Write(filepath.Join(t.TempDir(), "benchmarks.md"), &result.Results{}); err != nil {
		t.Error(err)
	}
}

// Results that are written and read give the same report.
func TestReportIsThatOfTheResults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := fixture()
	if err := before.Write(filepath.Join(dir, "results.json")); err != nil {
		t.Fatal(err)
	}
	after, err := result.Read(filepath.Join(dir, "results.json"))
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("%v (-written +read):\n%s", err, diff)
	}
}

// What is in docs/ was made of the results that lie here, by this code.
func TestReportInTheDocsIsFresh(t *testing.T) {
	t.Parallel()
	results, err := result.Read("../results.json")
	if err == nil {
		err = results.ReadSections("../results.json")
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := Write(path, results); err != nil {
		t.Fatal(err)
	}
	const remedy = "is not that of the results: make bench/report"
	for _, name := range []string{"benchmarks.md", "benchmarks/report.md"} {
		want, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("../../../docs", name)); err != nil || string(got) != string(want) {
			t.Errorf("docs/%s %s (%v)", name, remedy, err)
		}
	}
	for _, made := range glob(t, filepath.Join(filepath.Dir(path), "benchmarks", "*.png")) {
		name := filepath.Join("../../../docs/benchmarks", filepath.Base(made))
		if sameBytes(t, made, name) {
			continue
		}
		if n := dots(picture(t, made), picture(t, name)); n > 0 {
			t.Errorf("%s %s: %d dots", name, remedy, n)
		}
	}
}

// sameBytes spares the looking at two pictures.
func sameBytes(t *testing.T, a, b string) bool {
	t.Helper()
	one, err1 := os.ReadFile(a)
	other, err2 := os.ReadFile(b)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(one, other)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
