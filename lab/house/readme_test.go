package house_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

// documents returns the texts that make claims about this repository, by file name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	documents := map[string]string{}
	for _, name := range append(names, "README.md", ".github/CONTRIBUTING.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		documents[name] = string(text)
	}
	return documents
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks returns the fenced blocks of a document in one language.
func blocks(document, language string) []string {
	var found []string
	for _, block := range fence.FindAllStringSubmatch(document, -1) {
		if block[1] == language {
			found = append(found, block[2])
		}
	}
	return found
}

// imports maps the package names that a code block may use to their import paths. A block that is a
// complete file has its own imports.
var imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "sql": "database/sql", "time": "time", "http": "net/http", "strings": "strings",
	"base64": "encoding/base64", "os": "os", "seal": "github.com/idem-go/idem/seal",
	"httptrace": "net/http/httptrace", "atomic": "sync/atomic",
	"pgx": "github.com/jackc/pgx/v5", "pgconn": "github.com/jackc/pgx/v5/pgconn", "pgxpool": "github.com/jackc/pgx/v5/pgxpool",
	"goose": "github.com/pressly/goose/v3",
	"idem":  "github.com/idem-go/idem", "idemsql": "github.com/idem-go/idem/idemsql", "idemhttp": "github.com/idem-go/idem/idemhttp",
	"migrations": "github.com/idem-go/idem/migrations", "idemclient": "github.com/idem-go/idem/idemclient",
	"purge": "github.com/idem-go/idem/purge", "operation": "github.com/idem-go/idem/operation",
	"outbox": "github.com/idem-go/idem/outbox", "inbox": "github.com/idem-go/idem/inbox", "direct": "github.com/idem-go/idem/adapter/direct",
}

// whole returns a block as a complete file. A block of statements becomes the body of a function.
func whole(block string) string {
	if strings.HasPrefix(block, "package ") {
		return block
	}
	parameter := ""
	if !regexp.MustCompile(`(?m)^\s*(var pool |pool :=)`).MatchString(block) {
		parameter = ", pool *pgxpool.Pool"
	}
	var file strings.Builder
	file.WriteString("package main\n\nimport (\n")
	for name, path := range imports {
		if name == "context" || name == "sql" || name == "pgxpool" && parameter != "" || regexp.MustCompile(`\b`+name+`\.`).MatchString(block) {
			fmt.Fprintf(&file, "%s %q\n", name, path)
		}
	}
	file.WriteString(")\n\nfunc main() {}\n\nfunc _(ctx context.Context, db *sql.DB" + parameter + ") error {\n" + block + "}\n")
	return file.String()
}

func TestDocs_GoCompiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	// Each block is a package of one importing module. A single go vet compiles all of them and
	// links none.
	importer := newImporter(t)
	found := 0
	for name, document := range documents(t) {
		if name == recipePage {
			for _, recipe := range recipes { // compiled by TestGoInTheRecipesCompiles
				document = strings.Replace(document, sectionOf(t, document, recipe.section), "", 1)
			}
		}
		for n, block := range blocks(document, "go") {
			dir := filepath.Join(importer, strings.NewReplacer("/", "_", ".", "_").Replace(fmt.Sprint(name, "/", n+1)))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "main.go"), whole(block))
			found++
		}
	}
	if found == 0 {
		t.Error("the docs contain no Go")
	}
	vet := exec.Command("go", "vet", "-mod=mod", "./...")
	vet.Dir = importer
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// All programs of a page use one database, and each prints the text block that follows it.
func TestDocs_ProgramsPrintTheirOutput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	for _, page := range []string{"README.md", "docs/start.md", "docs/operations.md", "docs/messages.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			document, dsn, dir := documents(t)[page], pgtest.EmptyDSN(t), t.TempDir()
			outputs := blocks(document, "text")
			for n, block := range blocks(document, "go") {
				if !strings.HasPrefix(block, "package main") {
					continue
				}
				source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
				write(t, source, block)
				if out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for run := range 2 { // the second run must work on the same database
					cmd := exec.Command(program)
					cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
					out, err := cmd.CombinedOutput()
					if diff := cmp.Diff(outputs[n], string(out)); err != nil || run == 0 && diff != "" {
						t.Errorf("program %d, run %d: %v (-page +run)\n%s", n+1, run+1, err, diff)
					}
				}
			}
		})
	}
}

// scripts matches SQL that needs a transaction or roles. Other tests run these blocks.
var scripts = regexp.MustCompile(`(?m)^(CREATE ROLE|GRANT|BEGIN|FROM idempotency_keys)\b`)

// Postgres can prepare every statement of the docs.
func TestDocs_SQLIsValid(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for name, document := range documents(t) {
		for _, block := range blocks(document, "sql") {
			if scripts.MatchString(block) {
				continue
			}
			for sql := range strings.SplitSeq(strings.TrimSpace(block), ";\n") {
				if _, err := conn.Prepare(t.Context(), "", sql); err != nil {
					t.Errorf("%s: %v\n%s", name, err, sql)
				}
			}
		}
	}
}

// Targets, variables, tests, files, headings and identifiers that the docs name must exist.
func TestDocs_NamesExist(t *testing.T) {
	t.Parallel()
	source := repository(t)
	found := map[string]bool{}
	for name, document := range documents(t) {
		for _, kind := range []struct {
			what   string
			find   string
			exists func(string) bool
		}{
			{"target of the Makefile", "(?m)(?:`|^    (?:[A-Z_]+=\\S+ )*)make ([a-z]+(?:/[a-z]+)?)", func(s string) bool {
				return source.has("Makefile", s, `(?m)^`+s+`:`)
			}},
			{"variable", `\b(IDEM_TEST_[A-Z_]+)\b`, func(s string) bool { return source.has(".go", s, `"`+s+`"`) }},
			{"test", `\b((?:Test|Example|Fuzz|Benchmark)[A-Z]\w+)\b`, func(s string) bool {
				return s == "TestName" || s == "TestType_Behavior" || source.has("_test.go", s, `(?m)^func `+s+`\(`)
			}},
			{"file", "`([\\w./-]+(?:/|\\.(?:go|sql|md|yml|json|conf)))`", func(s string) bool {
				return strings.HasPrefix(s, "github.com/") || source.exists(s)
			}},
			{"path", "`((?:\\.ci|\\.github|docs|example|internal|lab|migrations|queries|testdata|tools)/[\\w./-]*)`", source.exists},
			{"file that is linked to", `\]\(([\w./-]+)(?:#[\w-]+)?\)`, func(s string) bool {
				return source.exists(filepath.Join(filepath.Dir(name), s))
			}},
			{"heading", `\]\(#([\w-]+)\)`, func(s string) bool { return slices.Contains(anchors(document), s) }},
			{"heading of another page", `\]\(([\w./-]+\.md#[\w-]+)\)`, func(s string) bool {
				page, anchor, _ := strings.Cut(s, "#")
				text, err := os.ReadFile(filepath.Join(filepath.Dir(name), page))
				return err == nil && slices.Contains(anchors(string(text)), anchor)
			}},
			{"identifier of idem", "`(With[A-Z]\\w+|Err[A-Z]\\w+|\\*\\w+Error)\\b", func(s string) bool {
				s = strings.TrimPrefix(s, "*")
				return source.has(".go", s, `\b`+s+`\b.*[=({]`)
			}},
		} {
			for _, match := range regexp.MustCompile(kind.find).FindAllStringSubmatch(document, -1) {
				found[kind.what] = true
				if !kind.exists(match[1]) {
					t.Errorf("%s: there is no %s %s", name, kind.what, match[1])
				}
			}
		}
	}
	if len(found) != 9 {
		t.Errorf("found only names of the kinds %v: an expression above matches nothing", found)
	}
}

var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// anchors returns the link targets of the headings of a document.
func anchors(document string) []string {
	var names []string
	for _, match := range heading.FindAllStringSubmatch(document, -1) {
		name := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(match[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// sources maps the paths of all Go files and of the Makefile to their text.
type sources map[string]string

func repository(t *testing.T) sources {
	t.Helper()
	files := sources{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" && path != "Makefile" {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// has reports whether a file whose path has the suffix matches the pattern. The pattern contains
// name: the plain search for name is fast and excludes most files.
func (s sources) has(suffix, name, pattern string) bool {
	find := regexp.MustCompile(pattern)
	for path, text := range s {
		if strings.HasSuffix(path, suffix) && strings.Contains(text, name) && find.MatchString(text) {
			return true
		}
	}
	return false
}

func (sources) exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
