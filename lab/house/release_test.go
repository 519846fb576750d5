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
	version = "v0.1.0" // the version of this repository that every go.mod requires
)

// testOnly lists parts of module names that only tests need. The modules that require them, such as
// lab/brokers, are not released.
var testOnly = []string{"nats-server", "kfake", "kadm", "redisstream", "go-redis", "testcontainers"}

// released returns the folders of the modules that users install.
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

// A module proxy of files serves every module at its released version. For each module, an importer
// that requires nothing else must find all packages. The test compiles nothing, because the other
// tests have compiled the same sources.
func TestRelease_EachModuleInstallsAlone(t *testing.T) {
	t.Parallel()
	proxy := t.TempDir()
	for _, dir := range released(t) {
		publish(t, proxy, path.Join(library, filepath.ToSlash(dir)), dir)
	}
	env := alone(t, proxy)
	documented := rowsOf(t, "docs/portability.md", "| module | modules in the graph |")
	for _, dir := range released(t) {
		if strings.HasPrefix(dir, "cmd") {
			continue // TestRelease_GoInstallFindsAllModules
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
				t.Errorf("%s: an importer does not get version "+version+" of the library:\n%s", dir, out)
			}
			row := documented[cmp.Or(strings.TrimPrefix(dir, "."), "idem")]
			if graph := strconv.Itoa(strings.Count(string(out), "\n") - 1); !slices.Equal(row, []string{graph}) { // the importer itself is not counted
				t.Errorf("an importer of %s has %s modules in its graph, docs/portability.md has %v:\n%s", dir, graph, row, out)
			}
			for _, server := range testOnly {
				if strings.Contains(string(out), server) {
					t.Errorf("an importer of %s has %s in its graph, which only tests need", dir, server)
				}
			}
		}
	}
}

// A replace directive works in this repository only: go ignores it in the go.mod of a dependency.
func TestRelease_ModulesRequireOneVersion(t *testing.T) {
	t.Parallel()
	requires := regexp.MustCompile(`(?m)^\s*(?:require )?` + library + `\S* (v\S+)$`)
	for _, dir := range released(t) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mod), "replace") {
			t.Errorf("%s replaces a module, which has no effect for an importer", dir)
		}
		found := requires.FindAllStringSubmatch(string(mod), -1)
		if dir != "." && len(found) == 0 {
			t.Errorf("%s does not require the library", dir)
		}
		for _, match := range found {
			if match[1] != version {
				t.Errorf("%s requires %s, want "+version, dir, strings.TrimSpace(match[0]))
			}
		}
	}
}

// With -n, go install resolves the modules of the command and compiles nothing.
func TestRelease_GoInstallFindsAllModules(t *testing.T) {
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
			t.Errorf("go install does not use %s", part)
		}
	}
}

// alone returns the environment of a go command that gets the modules of this repository from a
// proxy of files. Its module cache links to the modules that this machine already has. The modules
// of this repository are in a new directory, so that no other go command finds a release that does
// not exist.
func alone(t *testing.T, proxy string) []string {
	t.Helper()
	cache := strings.TrimSpace(goCommand(t, ".", "env", "GOMODCACHE"))
	own := t.TempDir()
	for _, part := range []string{"", filepath.Join("cache", "download")} {
		linkEntries(t, filepath.Join(cache, part), filepath.Join(own, part), "cache", "github.com")
		linkEntries(t, filepath.Join(cache, part, "github.com"), filepath.Join(own, part, "github.com"), "idem-go")
	}
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+own, "GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download")+","+strings.TrimSpace(goCommand(t, ".", "env", "GOPROXY")))
}

// linkEntries creates the directory to with a link to each entry of from, except those in without.
func linkEntries(t *testing.T, from, to string, without ...string) {
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

// publish writes the files that a module proxy serves for a version. The archive leaves out the
// modules in subdirectories.
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

// isElsewhere reports whether a directory does not belong to the module around it.
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
