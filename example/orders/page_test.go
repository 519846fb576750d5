package main

import (
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// newPagedShop returns a shop that also serves the page.
func newPagedShop(t testing.TB) *shop {
	t.Helper()
	s := newShop(t)
	s.handler = withPage(s.pool, demoCredentials(), s.handler)
	return s
}

func TestPage_LoadsNothingFromOtherHosts(t *testing.T) {
	t.Parallel()
	s := newPagedShop(t)
	page := s.get("/")
	wantStatus(t, page, http.StatusOK)
	links := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if len(links) < 3 {
		t.Fatalf("the page links only to %q", links)
	}
	for _, link := range links {
		wantStatus(t, s.get("/"+link[1]), http.StatusOK)
	}
	otherHost := regexp.MustCompile(`(?:src|href|url|from|import|fetch)\W{1,3}(?:https?:)?//`)
	files, err := fs.Glob(pageFiles, "page/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := pageFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := otherHost.Find(text); found != nil {
			t.Errorf("%s loads %q", name, found)
		}
		served := s.get("/" + strings.TrimPrefix(name, "page/"))
		if policy := served.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s has the policy %q", name, policy)
		}
	}
}
