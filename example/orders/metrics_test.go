package main

import (
	"net/http"
	"os"
	"testing"
)

func TestTmp(t *testing.T) {
	s := newShop(t)
	s.order(); s.order()
	s.order(withBody(aSamovar))
	w := s.get("/metrics")
	wantStatus(t, w, http.StatusOK)
	os.WriteFile("/tmp/metrics.txt", w.Body.Bytes(), 0o600)
}
