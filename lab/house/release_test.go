package house_test

import (
	"archive/zip"
	"cmp"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	library = "github.com/idem-go/idem"
	version = "v0.1.0" // that of this repository, which every go.mod asks for
)

// What runs in tests alone is in modules that are not released, such as lab/brokers.
var ofTestsAlone = []string{"nats-server", "kfake", "kadm", "redisstream", "go-redis", "testcontainers"}

// released returns the folders of the modules that people install.
func released(t *testing.T) []string {
	t.Helper()
	works, err := filepath.Glob("*/go.work")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob("*/*/go.work")
	if err != nil || len(works)+len(deeper) == 0 {
		t.Fatal(works, deeper, err)
	}
	modules := []string{"."}
	for _, work := range append(works, deeper...) {
		modules = append(modules, filepath.Dir(work))
	}
	return modules
}

// TestEachModuleIsInstalledAloneOnceReleased: all modules are served as a proxy would serve their tags, and all that each needs is found from
// a module that has nothing else and knows nothing of this repository. It does not compile: these are the sources that were compiled for the
// other tests.
func TestEachModuleIsInstalledAloneOnceReleased(t *testing.T) {
	t.Parallel()
	proxy := t.TempDir()
	for _, dir := range released(t) {
		publish(t, proxy, path.Join(library, filepath.ToSlash(dir)), dir)
	}
	env := alone(t, proxy)
	told := rowsOf(t, "docs/portability.md", "| module | modules in the graph |")
	for _, dir := range released(t) {
		if strings.HasPrefix(dir, "cmd") {
			continue // below
		}
		name := path.Join(library, filepath.ToSlash(dir))
		importer := t.TempDir()
		write(t, filepath.Join(importer, "go.mod"), "module importer\n\ngo 1.26.0\n\nrequire "+name+" "+version+"\n")
		write(t, filepath.Join(importer, "main.go"), "package main\n\nimport _ \""+name+"\"\n\nfunc main() {}\n")
		for _, args := range [][]string{{"list", "-mod=mod", "-deps", "./..."}, {"list", "-m", "all"}} {
			cmd := exec.Command("go", args...)
			cmd.Dir, cmd.Env = importer, env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: go %q: %v\n%s", dir, args, err, out)
				continue
			}
			if args[1] != "-m" {
				continue
			}
			if !strings.Contains(string(out), library+" "+version+"\n") {
				t.Errorf("%s: its library is not that of its release:\n%s", dir, out)
			}
			row := told[cmp.Or(strings.TrimPrefix(dir, "."), "idem")]
			if graph := strconv.Itoa(strings.Count(string(out), "\n") - 1); !slices.Equal(row, []string{graph}) { // without the importer
				t.Errorf("an importer of %s has %s modules in its graph, docs/portability.md says %v:\n%s", dir, graph, row, out)
			}
			for _, server := range ofTestsAlone {
				if strings.Contains(string(out), server) {
					t.Errorf("an importer of %s has %s in its graph, which its tests alone need", dir, server)
				}
			}
		}
	}
}

// TestEveryModuleAsksForTheSameVersionAndReplacesNothing: what go.mod replaces is replaced for those alone who work in this repository.
func TestEveryModuleAsksForTheSameVersionAndReplacesNothing(t *testing.T) {
	t.Parallel()
	asks := regexp.MustCompile(`(?m)^\s*(?:require )?` + library + `\S* (v\S+)$`)
	for _, dir := range released(t) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mod), "replace") {
			t.Errorf("%s replaces a module: an importer would not have that", dir)
		}
		found := asks.FindAllStringSubmatch(string(mod), -1)
		if dir != "." && len(found) == 0 {
			t.Errorf("%s does not ask for the library", dir)
		}
		for _, match := range found {
			if match[1] != version {
				t.Errorf("%s asks for %s", dir, strings.TrimSpace(match[0]))
			}
		}
	}
}

// TestGoInstallFindsAllItNeedsOnceReleased: go install plans the command from there. It does not compile, either.
func TestGoInstallFindsAllItNeedsOnceReleased(t *testing.T) {
	t.Parallel()
	const tool = library + "/cmd/idem"
	proxy := t.TempDir()
	publish(t, proxy, library, ".")
	publish(t, proxy, tool, "cmd/idem")
	cmd := exec.Command("go", "install", "-n", tool+"@"+version)
	cmd.Dir, cmd.Env = t.TempDir(), alone(t, proxy)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, part := range []string{library + "@" + version, tool + "@" + version} {
		if !strings.Contains(string(out), filepath.FromSlash(part)) {
			t.Errorf("it does not compile %s", part)
		}
	}
}

// alone is the environment of a command that gets the modules of this repository from a proxy of files. Its cache of modules has those of this
// machine, which is quicker than to fetch them, but for a room of its own for ours: no other command is to find a release that is none.
func alone(t *testing.T, proxy string) []string {
	t.Helper()
	cache := strings.TrimSpace(goCommand(t, ".", "env", "GOMODCACHE"))
	own := t.TempDir()
	for _, part := range []string{"", filepath.Join("cache", "download")} {
		beside(t, filepath.Join(cache, part), filepath.Join(own, part), "cache", "github.com")
		beside(t, filepath.Join(cache, part, "github.com"), filepath.Join(own, part, "github.com"), "idem-go")
	}
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+own, "GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download")+","+strings.TrimSpace(goCommand(t, ".", "env", "GOPROXY")))
}

// beside makes a folder that has what another one has, without some.
func beside(t *testing.T, from, to string, without ...string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.Contains(without, e.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// publish writes what a proxy has of a version: its go.mod, and its files without the modules below it.
func publish(t *testing.T, proxy, module, dir string) {
	t.Helper()
	to := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": version + "\n", version + ".info": `{"Version":"` + version + `"}`, version + ".mod": string(mod),
	} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && isElsewhere(path, entry.Name()):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return pack(archive, module+"@"+version+"/"+filepath.ToSlash(name), path)
	})
	if err == nil {
		err = archive.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isElsewhere tells whether a directory is no part of the module around it.
func isElsewhere(path, name string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil || name == "bin" || strings.HasPrefix(name, ".") || name == "docs"
}

func pack(archive *zip.Writer, name, path string) error {
	to, err := archive.Create(name)
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return err
}
