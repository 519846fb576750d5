package house_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages returns every text for people, by file name: also those that are no documents of documents.
func pages(t *testing.T) map[string]string {
	t.Helper()
	pages := documents(t)
	for _, pattern := range []string{".github/*.md", "docs/*/*.md", "lab/*/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			pages[name] = string(text)
		}
	}
	return pages
}

var anyFence = regexp.MustCompile("(?ms)^ *```(\\S*)\n(.*?)^ *```$")

// A block is of a language that a test compiles, runs or parses, or it is text.
func TestBlocksOfTheDocsAreOfALanguageThatIsChecked(t *testing.T) {
	t.Parallel()
	for name, page := range pages(t) {
		for _, block := range anyFence.FindAllStringSubmatch(page, -1) {
			switch language, text := block[1], block[2]; language {
			case "go", "sql": // TestGoInTheDocsCompiles, TestGoInTheRecipesCompiles, TestSQLInTheDocsIsValid
				if dir := filepath.Dir(name); dir != "docs" && dir != "." && name != "docs/recipes/"+filepath.Base(name) {
					t.Errorf("%s: no test reads a block of %s there", name, language)
				}
			case "json":
				if !json.Valid([]byte(text)) {
					t.Errorf("%s: this is no JSON:\n%s", name, text)
				}
			case "sh":
				parse := exec.Command("sh", "-n")
				parse.Stdin = strings.NewReader(text)
				if out, err := parse.CombinedOutput(); err != nil {
					t.Errorf("%s: the shell does not understand: %v\n%s\n%s", name, err, out, text)
				}
			case "text":
			default:
				t.Errorf("%s: a block is of the language %q, which no test reads", name, language)
			}
		}
	}
}

var (
	inlineCommand   = regexp.MustCompile("`((?:[A-Z_]+=\\S+ )*(?:make|bin/testenv|go|cd|idem) [^`\n]+)`")
	indentedCommand = regexp.MustCompile(`(?m)^    (?:\$ )?((?:[A-Z_]+=\S+ )*(?:make|bin/testenv|go|cd|idem|idemvet) .*)$`)
	remark          = regexp.MustCompile(`\s{2,}.*|\s# .*`)
	words           = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// commandsOf returns the commands that a page names, each as its words.
func commandsOf(page string) (all [][]string) {
	var lines []string
	for _, block := range anyFence.FindAllStringSubmatch(page, -1) {
		if block[1] == "sh" {
			lines = append(lines, strings.Split(block[2], "\n")...)
		}
	}
	page = anyFence.ReplaceAllString(page, "")
	for _, find := range []*regexp.Regexp{inlineCommand, indentedCommand} {
		for _, match := range find.FindAllStringSubmatch(page, -1) {
			lines = append(lines, match[1])
		}
	}
	for _, line := range lines {
		line = strings.TrimSpace(remark.ReplaceAllString(line, ""))
		dir := ""
		for part := range strings.SplitSeq(line, " && ") {
			command := words.FindAllString(part, -1)
			for i := range command {
				command[i] = strings.Trim(command[i], `'"`)
			}
			if len(command) == 2 && command[0] == "cd" {
				dir = command[1]
				continue
			}
			if dir != "" && len(command) > 1 && strings.HasSuffix(command[0], "bin/testenv") && command[1] == "go" {
				command = append([]string{"go", "-C", dir}, command[2:]...)
			}
			all = append(all, command)
		}
	}
	return all
}

// Commands are there, with their flags, and the tests that they are to run.
func TestCommandsInTheDocsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]int{}
	for name, page := range pages(t) {
		for _, command := range commandsOf(page) {
			for len(command) > 0 && (strings.Contains(command[0], "=") || command[0] == "bin/testenv") {
				command = command[1:]
			}
			if len(command) < 2 {
				continue
			}
			wrong := ""
			switch command[0] {
			case "make":
				for _, word := range command[2:] {
					if variable, _, ok := strings.Cut(word, "="); ok && !strings.Contains(string(makefile), "$("+variable+")") && !strings.Contains(string(makefile), "$(if $("+variable) && !strings.Contains(string(makefile), "$$"+variable) {
						wrong = "the Makefile reads no " + variable
					}
				}
			case "go":
				wrong = wrongGo(t, filepath.Dir(name), command[1:])
			case "idem":
				if command[1] == "handle" { // a span
					continue
				}
				wrong = wrongIdem(t, command[1:])
			default:
				continue
			}
			checked[command[0]]++
			if wrong != "" {
				t.Errorf("%s: %s: %s", name, strings.Join(command, " "), wrong)
			}
		}
	}
	if len(checked) != 3 {
		t.Errorf("looked up only %v: the docs are no longer understood", checked)
	}
	t.Log(checked)
}

// goFlags are those of go test with a value, and without.
var goFlags = map[string]bool{
	"-run": true, "-bench": true, "-benchtime": true, "-count": true, "-timeout": true, "-parallel": true, "-overlay": true,
	"-v": false, "-race": false, "-short": false, "-args": false, "-benchmem": false, "-mod": true, "-vettool": true, "-ldflags": true,
}

// wrongGo says what is wrong with go test or go run of a page in a folder, nothing if it is not.
func wrongGo(t *testing.T, page string, words []string) string {
	t.Helper()
	dir := "."
	if words[0] == "-C" {
		dir, words = words[1], words[2:]
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			return "there is no module " + dir
		}
	} else if filepath.Dir(page) == "lab" { // a README is read where it is
		dir = page
	}
	if words[0] != "test" && words[0] != "run" || slices.Contains(words, "-report") { // the reports say how they were made, from their own folder
		return ""
	}
	pkg, flags, names := dir, []string(nil), map[string]string{}
	for i := 1; i < len(words); i++ {
		flag, _, joined := strings.Cut(words[i], "=")
		takes, known := goFlags[flag]
		switch {
		case words[i] == "./...":
			return ""
		case strings.HasPrefix(words[i], "."):
			pkg = filepath.Join(dir, words[i])
			if _, err := os.Stat(pkg); err != nil {
				return "there is no " + pkg
			}
		case known && takes && !joined && i+1 < len(words):
			names[flag] = words[i+1]
			i++
		case strings.HasPrefix(flag, "-") && !known:
			flags = append(flags, strings.TrimLeft(flag, "-"))
		}
	}
	source, tests := goOf(t, pkg)
	for _, flag := range flags {
		if !strings.Contains(source, `"`+flag+`", `) {
			return "there is no flag -" + flag + " in " + pkg
		}
	}
	for flag, kind := range map[string]string{"-run": "Test", "-bench": "Benchmark"} {
		pattern, _, _ := strings.Cut(names[flag], "/")
		if pattern == "" || pattern == "^$" || pattern == "XXX" || strings.Contains(pattern, "TestName") {
			continue
		}
		find, err := regexp.Compile(pattern)
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(tests, func(name string) bool { return strings.HasPrefix(name, kind) && find.MatchString(name) }) {
			return "it runs no " + kind + " of " + pkg
		}
	}
	return ""
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)

// goOf returns the text of a package with its tests, and their names.
func goOf(t *testing.T, dir string) (source string, tests []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source += string(text)
	}
	for _, match := range testFunction.FindAllStringSubmatch(source, -1) {
		tests = append(tests, match[1])
	}
	return source, tests
}

// wrongIdem says what is wrong with a command of the tool, which the golden files of its help tell.
func wrongIdem(t *testing.T, words []string) string {
	t.Helper()
	help := ""
	name := strings.Trim(words[0], ",")
	for i := 0; i < 2 && i < len(words); i++ {
		if i > 0 {
			name += "-" + strings.Trim(words[i], ",")
		}
		if text, err := os.ReadFile("cmd/idem/internal/command/testdata/help-" + name + ".txt"); err == nil {
			help = string(text)
		}
	}
	if help == "" {
		return "there is no such command"
	}
	for _, word := range words {
		flag, _, _ := strings.Cut(word, "=")
		if len(flag) > 1 && flag[0] == '-' && !regexp.MustCompile(`(^|\s|, |\[no-\]|,)`+regexp.QuoteMeta(flag)+`\b`).MatchString(help) {
			return "it has no flag " + flag
		}
	}
	return ""
}
