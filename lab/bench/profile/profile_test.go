package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/bench/contestant"
	"github.com/idem-go/idem/lab/bench/measure"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/sidebyside"
)

// testServer returns a server.
func testServer(t *testing.T) *sidebyside.Server {
	t.Helper()
	s, err := sidebyside.StartServer(t.Context(), "", false)
	optional.Require(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// What does not do the work costs nothing.
func TestEveryCourseHasItsEffectAndItsRecordOnce(t *testing.T) {
	t.Parallel()
	s := testServer(t)
	const count = 10
	for _, w := range works {
		for _, c := range w.courses {
			st, err := open(t.Context(), s, c)
			if err != nil {
				t.Fatal(err)
			}
			defer st.pool.Close()
			source := measure.NewSource(1, w.business, responseSize)
			keys := source.Take(count)
			if w.again {
				keys = append(keys, keys...)
			}
			_, err = st.take(t.Context(), source.Template, keys)
			if errors.Is(err, measure.ErrNoClock) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			var effects int
			if err := st.pool.QueryRow(t.Context(), "select count(*) from orders").Scan(&effects); err != nil || effects != count {
				t.Errorf("%s, %s: %d effects of %d keys, %v", w.Name, c.name, effects, count, err)
			}
			completed, want := 0, count
			if strings.HasSuffix(c.name, "bare INSERT of a record") || c.name == contestant.NamePlain || c.name == inEngine || c.name == contestant.NameTextbook {
				want = 0
			}
			err = st.pool.QueryRow(t.Context(), "select count(*) from idem.records where state = 'completed' and status = 201 and length(body) = $1", responseSize).Scan(&completed)
			if err != nil || completed != want {
				t.Errorf("%s, %s: %d completed records, want %d, %v", w.Name, c.name, completed, want, err)
			}
		}
	}
}

func TestQuickRunHasEverySection(t *testing.T) {
	t.Parallel()
	text, err := profile(t.Context(), testServer(t), sidebyside.Options{Quick: true, Seed: 1})
	if errors.Is(err, measure.ErrNoClock) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	report := text.String()
	for _, want := range []string{
		"### What a first run of one INSERT consists of", "### What a replay consists of", "Two bare writes of a record beside the effect leave",
		"### By the size of the table", "| 1000 |",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in the report", want)
		}
	}
	for _, either := range [][2]string{
		{"### What is in the log", "Left out: what is in the log"}, {"### In which programs", "Left out: in which programs"},
		{"### How many instructions", "Left out: how many instructions"},
	} {
		if strings.Contains(report, either[0]) == strings.Contains(report, either[1]) {
			t.Errorf("want one of %q", either)
		}
	}
	for _, unwanted := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(report, unwanted) {
			t.Errorf("%q is in the report", unwanted)
		}
	}
	if t.Failed() {
		t.Log(report)
	}
}

func TestBytesOfTheLogAreAddedUpByKind(t *testing.T) {
	t.Parallel()
	got, err := summed(`
WAL statistics between 0/1 and 0/2:
Type                                           N      (%)          Record size      (%)             FPI size      (%)        Combined size      (%)
----                                           -      ---          -----------      ---             --------      ---        -------------      ---
Transaction/COMMIT                          2000 ( 12.13)                68000 (  3.42)                    0 (  0.00)                68000 (  3.42)
Heap/INSERT                                 3883 ( 23.55)               572185 ( 28.77)                   15 (  0.00)               572200 ( 28.77)
Heap/INSERT+INIT                             117 (  0.71)                21815 (  1.10)                    0 (  0.00)                21815 (  1.10)
Heap/LOCK                                   2000 ( 12.13)               108000 (  5.43)                    0 (  0.00)               108000 (  5.43)
Btree/SPLIT_L                                 15 (  0.09)                62640 (  3.15)                    0 (  0.00)                62640 (  3.15)
                                        --------                      --------                      --------                      --------
Total                                       8015                        832640 [99.99%]                   15 [0.01%]               832655 [100%]
`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{
		"rows inserted": 594015, "a row locked before its update": 108000, "index entries, pages of an index split": 62640, "the commit": 68000,
	}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := summed("pg_waldump: error: could not find a valid record"); err == nil {
		t.Error("nothing was counted, and that is no error")
	}
}

func TestSamplesAreSharedOutAmongPrograms(t *testing.T) {
	t.Parallel()
	row := func(percent float64, comm, dso, symbol string) string {
		return fmt.Sprintf("%5.2f%%\t%-15s\t%-20s\t%s   -      -\n", percent, comm, dso, symbol)
	}
	got, err := shared("\n" +
		row(30, "postgres", "[kernel.kallsyms]", "[k] tcp_sendmsg") + row(10, "postgres", "postgres", "[.] hash_search") +
		row(12, "postgres", "postgres", "[.] 0x00000000004616f6") + row(3, "postgres", "libc.so.6", "[.] memcpy") +
		row(20, "profile", "[kernel.kallsyms]", "[k] futex") + row(5, "profile", "profile", "[.] runtime.mallocgc") +
		row(4, "profile", "profile", "[.] github.com/jackc/pgx/v5/pgconn.(*PgConn).peekMessage") +
		row(2, "profile", "profile", "[.] github.com/idem-go/idem.(*call).do") +
		row(1, "profile", "profile", "[.] github.com/idem-go/idem/lab/bench/contestant.Call.Execute"))
	if err != nil {
		t.Fatal(err)
	}
	rounded := map[string]string{}
	for name, share := range got.shares {
		rounded[name] = fmt.Sprintf("%.2f", share)
	}
	if diff := cmp.Diff(map[string]string{
		serverKernel: "0.30", serverPostgres: "0.22", serverLibrary: "0.03", clientKernel: "0.20", clientGo: "0.05",
		clientPgx: "0.04", clientIdem: "0.02", clientBench: "0.01",
	}, rounded); diff != "" {
		t.Error(diff)
	}
	if got.first.name != "hash_search" || fmt.Sprintf("%.2f", got.first.share) != "0.45" {
		t.Errorf("first is %+v", got.first)
	}
	if _, err := shared(row(9, "profile", "profile", "[.] 0x00000000004616f6")); !errors.Is(err, errNoNames) {
		t.Errorf("without names: %v", err)
	}
	if _, err := shared("no samples"); err == nil {
		t.Error("nothing was seen, and that is no error")
	}
}

func TestSessionsAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := testServer(t)
	st, err := open(context.Background(), s, of(contestant.Plain()))
	if err != nil {
		t.Fatal(err)
	}
	defer st.pool.Close()
	var pid int
	if err := st.pool.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	diff := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // the one that has made the schema is on its way out
		pids, err := st.clock.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff = cmp.Diff([]int{pid}, pids); diff == "" {
			return
		}
	}
	t.Error(diff)
}
