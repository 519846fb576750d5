package main

import (
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// newPagedShop is newShop with the page in front.
func newPagedShop(t testing.TB) *shop {
	t.Helper()
	s := newShop(t)
	s.handler = withPage(s.pool, demoCredentials(), s.handler)
	return s
}

func TestPageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	page := s.get("/")
	wantStatus(t, page, http.StatusOK)
	links := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if len(links) < 3 {
		t.Fatalf("the page links to %q only", links)
	}
	for _, link := range links {
		wantStatus(t, s.get("/"+link[1]), http.StatusOK)
	}
	elsewhere := regexp.MustCompile(`(?:src|href|url|from|import|fetch)\W{1,3}(?:https?:)?//`)
	files, err := fs.Glob(pageFiles, "page/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := pageFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := elsewhere.Find(text); found != nil {
			t.Errorf("%s has %q", name, found)
		}
		served := s.get("/" + strings.TrimPrefix(name, "page/"))
		if policy := served.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s is served under the policy %q", name, policy)
		}
	}
}
