package main

import "testing"

func TestDurable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		settings settings
		want     bool
	}{
		{settings{}, true}, // the default of Postgres
		{testSettings(), false},
		{append(testSettings(), "fsync=on"), true},
		{append(testSettings(), "FSYNC = true"), true},
		{append(testSettings(), "fsync=on", "fsync=0"), false},
		{settings{"fsync=false"}, false},
	} {
		if got := test.settings.durable(); got != test.want {
			t.Errorf("%v: durable is %v, want %v", test.settings, got, test.want)
		}
	}
}
