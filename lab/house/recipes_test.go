package house_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const recipePage = "docs/recipes.md"

// recipes are the sections of the page whose blocks are compiled in the module that has their
// imports, after the declarations in a file of testdata/recipes. The blocks of its other sections
// are compiled like those of any page.
var recipes = []struct{ section, declarations, module string }{
	{"HTTP routers", "routers.go.txt", "lab/webtest"},
	{"gRPC", "grpc.go.txt", "idemgrpc"},
	{"Connect", "connect.go.txt", "idemconnect"},
	{"Agents and MCP", "agents.go.txt", "."},
}

// sectionOf returns the text below a heading of the second level, up to the next one.
func sectionOf(t *testing.T, document, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(document, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %s", recipePage, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

var declaration = regexp.MustCompile(`^(//.*\n)*func `)

var assigned = regexp.MustCompile(`(?m)^(\w+)(?:, (\w+))? :=`)

func TestGoInTheRecipesCompiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	document, err := os.ReadFile(recipePage)
	if err != nil {
		t.Fatal(err)
	}
	for _, recipe := range recipes {
		t.Run(recipe.section, func(t *testing.T) {
			t.Parallel()
			declarations, err := os.ReadFile(filepath.Join("lab/house/testdata/recipes", recipe.declarations))
			if err != nil {
				t.Fatal(err)
			}
			file := string(declarations)
			for n, block := range blocks(sectionOf(t, string(document), recipe.section), "go") {
				file += asFunction(n, block)
			}
			source, overlay := filepath.Join(t.TempDir(), "recipe.go"), filepath.Join(t.TempDir(), "overlay.json")
			write(t, source, file)
			module, err := filepath.Abs(recipe.module)
			if err != nil {
				t.Fatal(err)
			}
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(module, "recipe", "recipe.go"): source}})
			if err != nil {
				t.Fatal(err)
			}
			write(t, overlay, string(replace))
			build := exec.Command("go", "build", "-overlay", overlay, "./recipe")
			build.Dir = module
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// asFunction makes a function of a block of statements, which uses what they assign. A block of declarations stays as it is.
func asFunction(n int, block string) string {
	if declaration.MatchString(block) {
		return "\n" + block
	}
	var used strings.Builder
	for _, names := range assigned.FindAllStringSubmatch(block, -1) {
		for _, name := range names[1:] {
			if name != "" {
				fmt.Fprintf(&used, "_ = %s\n", name)
			}
		}
	}
	return fmt.Sprintf("\nfunc _%d() {\n%s%s}\n", n, block, used.String())
}
