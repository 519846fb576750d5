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

// recipes are compiled in the modules that have what they import, behind what testdata/recipes says of the program around them.
var recipes = map[string]string{
	"docs/recipes/agents.md":  ".",
	"docs/recipes/connect.md": "idemconnect",
	"docs/recipes/grpc.md":    "idemgrpc",
	"docs/recipes/routers.md": "lab/webtest",
}

var declaration = regexp.MustCompile(`^(//.*\n)*func `)

var assigned = regexp.MustCompile(`(?m)^(\w+)(?:, (\w+))? :=`)

func TestGoInTheRecipesCompiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the compiler")
	}
	names, err := filepath.Glob("docs/recipes/*.md")
	if err != nil || len(names) != len(recipes) {
		t.Fatalf("%v: a recipe is not compiled: %v", names, err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			document, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			around, err := os.ReadFile("lab/house/testdata/recipes/" + strings.TrimSuffix(filepath.Base(name), ".md") + ".go.txt")
			if err != nil {
				t.Fatal(err)
			}
			file := string(around)
			for n, block := range blocks(string(document), "go") {
				file += asFunction(n, block)
			}
			source, overlay := filepath.Join(t.TempDir(), "recipe.go"), filepath.Join(t.TempDir(), "overlay.json")
			write(t, source, file)
			module, err := filepath.Abs(recipes[name])
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
