package command_test

import (
	"regexp"
	"strings"
	"testing"
)

// commands returns the commands that the help lists.
func commands(t *testing.T) []string {
	t.Helper()
	help := (&harness{t: t}).idem("--help")
	_, list, _ := strings.Cut(help.stdout, "Commands:")
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(list, -1) {
		names = append(names, match[1])
	}
	return names
}

// below has the subcommands.
var below = []string{"migrate up", "migrate down", "migrate status",
	"operation list", "operation show", "operation history", "operation retry", "operation resolve", "operation cancel",
	"outbox stats", "outbox list", "outbox forget", "inbox stats", "inbox list", "dead list", "dead show", "dead redrive", "dead drop"}

func TestHelp_OfEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	all := commands(t)
	if len(all) < 9 {
		t.Fatalf("only %q", all)
	}
	for _, name := range append(all, below...) {
		words := strings.Fields(name)
		help := (&harness{t: t}).idem(append(words, "--help")...)
		help.want(t, 0, "Usage: idem "+name, "Example:")
		compareGolden(t, "help-"+strings.Join(words, "-")+".txt", help.stdout)
	}
	compareGolden(t, "help.txt", (&harness{t: t}).idem("--help").stdout)
}

func TestHelp_ExplainsTopics(t *testing.T) {
	t.Parallel()
	d := &harness{t: t}
	d.idem("help", "topics").want(t, 0, "parked\n", "in doubt\n", "epoch\n", "lane\n", "held\n", "docs/glossary.md")
	one := d.idem("help", "in", "doubt")
	one.want(t, 0, "in doubt\n", "Ask the other side", "docs/glossary.md")
	if strings.Contains(one.stdout, "lane") {
		t.Errorf("more than one topic:\n%s", one.stdout)
	}
	d.idem("help", "lane", "--json").want(t, 0, `"name": "lane"`)
	d.idem("help", "operation", "resolve").want(t, 0, "Usage: idem operation resolve")
	d.idem("help").want(t, 0, "Usage: idem <command>", "idem help topics")
	d.idem("help", "nonsense").want(t, 2, "no topic", "idem help topics")
}

// Every example in the help parses.
func TestHelp_ExamplesParse(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	for _, name := range append(commands(t), below...) {
		help := d.idem(append(strings.Fields(name), "--help")...)
		_, example, _ := strings.Cut(strings.Join(strings.Fields(help.stdout), " "), "Example: idem ")
		example, _, _ = strings.Cut(example, " Flags:")
		example, _, _ = strings.Cut(example, " Arguments:")
		example, _, _ = strings.Cut(example, " Commands:")
		if example == "" && name != "completion" {
			t.Errorf("%s: no example", name)
		}
		if name == "completion" || name == "watch" || name == "ui" {
			continue // needs a shell, a terminal or a browser
		}
		if got := d.idem(append(words(example), "-d", d.dsn)...); got.code == 2 {
			t.Errorf("idem %s: %s", example, got.stderr)
		}
	}
}

// words splits a line like a shell, and supports single quotes only.
func words(line string) []string {
	var all []string
	for _, match := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		all = append(all, match[1]+match[2])
	}
	return all
}
