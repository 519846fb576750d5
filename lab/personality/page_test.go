package personality_test

import (
	"os"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/personality"
)

// docs/portability.md names the sources and the refusals of each personality.
func TestPersonality_RefusalsMatchTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/portability.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, needs, _ := strings.Cut(page, "<!-- needs -->\n")
	needs, _, _ = strings.Cut(needs, "<!-- end of needs -->")
	table := map[string]map[string]string{} // by server and need
	var servers []string
	for i, line := range strings.Split(strings.TrimSpace(needs), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		switch {
		case i == 0:
			servers = cells[1:]
		case i > 1:
			for j, cell := range cells[1:] {
				if table[servers[j]] == nil {
					table[servers[j]] = map[string]string{}
				}
				table[servers[j]][cells[0]] = cell
			}
		}
	}
	for _, p := range personality.All {
		for _, source := range p.Sources {
			if url, _, _ := strings.Cut(source, " "); !strings.Contains(page, url) {
				t.Errorf("the page does not name %s", url)
			}
		}
		server, _, _ := strings.Cut(p.Name, " up to")
		want := func(need, word string) {
			if cell := table[server][need]; !strings.Contains(cell, word) {
				t.Errorf("%s, %s: the page has %q, want %q", p.Name, need, cell, word)
			}
		}
		if _, refused := p.Functions["pg_try_advisory_xact_lock"]; refused {
			want("locks of a transaction", "refused")
		}
		if _, refused := p.Functions["pg_try_advisory_lock"]; refused {
			want("locks of a session", "refused")
		}
		if _, void := p.Instead["pg_try_advisory_xact_lock"]; void {
			want("locks of a transaction", "granted and void")
		}
		if _, void := p.Instead["pg_try_advisory_lock"]; void {
			want("locks of a session", "granted and void")
		}
		if _, refused := p.Sets["synchronous_commit"]; refused {
			want("synchronous_commit", "refused")
		}
		if _, refused := p.Commands["listen"]; refused {
			want("LISTEN, NOTIFY", "refused")
		}
	}
	if len(servers) < 7 {
		t.Errorf("%d servers were found", len(servers))
	}
}
