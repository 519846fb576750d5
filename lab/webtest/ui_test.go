package webtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

// openUI runs idem ui on the database of a shop with problems, and opens it in a browser.
func openUI(t *testing.T, args ...string) (p *page, token string) {
	t.Helper()
	dsn := pgtest.DSN(t)
	p = &page{t: t, pool: pgtest.Open(t, dsn)}
	getIntoTrouble(t, p.pool)
	p.tab = newTab(t)
	stdout := serve(t, buildIdem, []string{"DATABASE_URL=" + dsn}, append([]string{"ui", "--json", "--listen", "127.0.0.1:0"}, args...)...)
	var shown struct{ URL, Token string }
	if err := json.NewDecoder(stdout).Decode(&shown); err != nil {
		t.Fatal(err)
	}
	p.url = shown.URL
	p.do(failOnComplaints(t), chromedp.EmulateViewport(1280, 800))
	return p, shown.Token
}

// getIntoTrouble creates the records of a shop with many failures. The names are those of a hostile
// tenant.
func getIntoTrouble(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	checkout := operation.Define("checkout", func(op *operation.Op, in string) (idem.Response, error) {
		release := operation.UndoTx(func(pgx.Tx, int) error { return nil })
		if _, err := operation.Tx(op, "reserve", func(pgx.Tx) (int, error) { return 17, nil }, release); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) {
			if strings.HasPrefix(in, "lost") {
				return "", errors.New("the bank has not answered")
			}
			return "charge-1", nil
		})
		return idem.Response{Status: 201}, err
	})
	for n, in := range []string{"card", "lost 1", "card", "lost 2"} {
		scope := idem.Scope(fmt.Sprintf("tenant-%d", n), "POST /orders")
		if n == 3 {
			scope = `<script>hacked=1</script><img src=x onerror="hacked=2">`
		}
		_, err := checkout.Do(ctx, pool, scope, fmt.Sprintf("7f3c9a52-0d1e-4b6a-9a51-%012d", n), idem.HashBytes([]byte(in)), in, idem.WithWait(0))
		if in != "card" && !errors.Is(err, operation.ErrParked) || in == "card" && err != nil {
			t.Fatalf("%s: %v", in, err)
		}
	}
	approval := operation.Define("refund", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Await[string](op, "approval", 24*time.Hour)
		return idem.Response{Status: 200}, err
	})
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := approval.Start(ctx, tx, "tenant-1/refunds", "refund-of-order-1017", idem.HashBytes(), "17"); err != nil {
			return err
		}
		for n, topic := range []string{"orders", "orders", "invoices", `<b onclick="hacked=3">newsletter</b>`} {
			if err := outbox.Add(ctx, tx, outbox.Message{Topic: topic, Key: fmt.Sprintf("customer-of-tenant-%d", n), Type: "OrderPlaced", Payload: []byte("the secret")}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range []string{`no room for it: <script>hacked=4</script><svg onload=hacked=5>`, "the parcel is too large"} {
		o, err := inbox.Handle(ctx, pool, "shipping", inbox.Message{Source: "orders", ID: "evt_3P" + why[:3], Payload: []byte("the secret")},
			func(pgx.Tx) error { return errors.New(why) }, inbox.WithMaxAttempts(1))
		if o.State != inbox.Dead {
			t.Fatalf("%+v, %v", o, err)
		}
	}
}

func (p *page) open(path string) { p.t.Helper(); p.do(chromedp.Navigate(p.url + path)) }

func (p *page) fill(selector, value string) {
	p.t.Helper()
	p.do(chromedp.SetValue(chromedp.CSS(selector), value))
}

// login logs in as Ann.
func (p *page) login(token string) {
	p.t.Helper()
	p.open("login")
	p.fill("[name=token]", token)
	p.fill("[name=person]", "Ann")
	p.click("form.box button")
	p.says("You may act as Ann")
}

// says waits until the page contains text.
func (p *page) says(text string) {
	p.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		p.t.Fatal(err)
	}
	p.eventually(`document.body !== null && document.body.innerText.includes(` + string(quoted) + `)`)
}

// eventually waits until an expression is true. It retries if the browser leaves the page in the
// meantime.
func (p *page) eventually(expression string) {
	p.t.Helper()
	for {
		so, err := chromedp.Run(p.tab, chromedp.Evaluate[bool](expression))
		if so && err == nil {
			return
		}
		select {
		case <-p.tab.Done():
			p.t.Fatalf("waiting for %s: %v", expression, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// runsNothing fails the test if a text from outside has become a script or an element.
func (p *page) runsNothing() {
	p.t.Helper()
	bad, err := chromedp.Run(p.tab, chromedp.Evaluate[bool](
		`typeof hacked !== "undefined" || document.querySelector("#live img, #live svg:not(.chart), #live b, #live script, [onclick], [onerror], [onload]") !== null`))
	if err != nil || bad {
		p.t.Errorf("a text has become part of the page, %v", err)
	}
}

func TestTextOfStrangersDoesNotRunInTheBrowser(t *testing.T) {
	t.Parallel()
	p, _ := openUI(t)
	for _, path := range []string{"", "operations", "messages", "dead", "flight", "acts"} {
		p.open(path)
		p.eventually(`document.querySelector("#state")?.innerText.startsWith("Live") === true`) // the script of the page has run
		p.runsNothing()
	}
	p.open("dead")
	p.says("no room for it: <script>hacked=4</script>")
	p.click("tbody a")
	p.says("not shown here")
	p.runsNothing()
	p.says("This page is read-only")
}

func TestPersonSeesWhatIsParkedAndHelps(t *testing.T) {
	t.Parallel()
	p, token := openUI(t, "--write")
	p.open("")
	p.says("Parked operations")
	p.click(`#live a[href$="operations"]`)
	p.says("must not happen twice")
	p.click("tbody a")
	p.says("Log in with the token to act")
	p.click(`main a[href$="login"]`)
	p.fill("[name=token]", "a wrong one of some length")
	p.fill("[name=person]", "Ann")
	p.click("form.box button")
	p.says("That is not the token")
	p.login(token)

	p.open("operations")
	p.click("tbody a")
	p.says("Cancel ends the operation")
	p.screenshot()
	p.click(`form[action$=cancel] button`) // the browser asks for the missing reason
	p.fill(`form[action$=retry] [name=reason]`, "INC-7: the bank has answered")
	p.click(`form[action$=retry] button`)
	p.says("The operation is retried: a Worker")

	p.open("dead")
	p.click("tbody tr:last-child a")
	p.says("Redrive: let the consumer handle it again")
	p.fill("#redrive [name=reason]", "INC-8: there is room again")
	p.click("#redrive button")
	p.says("The dead letter is redriven")
	p.open("acts")
	p.says("INC-8: there is room again")
	var acts, redriven int
	err := p.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM idem.audit WHERE person = 'Ann'), (SELECT count(*) FROM idem.dead_letters WHERE redrive_at IS NOT NULL)`).Scan(&acts, &redriven)
	if err != nil || acts != 2 || redriven != 1 {
		t.Errorf("%d acts, %d redriven, %v", acts, redriven, err)
	}
}

// A page on another port of the machine belongs to the same site, so the browser sends the cookie
// with its forms.
func TestPageOfAnotherPortCannotAct(t *testing.T) {
	t.Parallel()
	p, token := openUI(t, "--write")
	p.login(token)
	var id string
	if err := p.pool.QueryRow(t.Context(), "SELECT id::text FROM idem.operations WHERE state = 'parked' LIMIT 1").Scan(&id); err != nil {
		t.Fatal(err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><form method="post" action="%scancel"><input name="id" value="%s"><input name="reason" value="a stranger's"><button>Win</button></form>`, p.url, id)
	}))
	t.Cleanup(other.Close)
	p.do(chromedp.Navigate(other.URL))
	p.says("Win")
	p.click("button")
	p.says("The form was not sent by this page.")
	p.open("")
	p.says("You may act as Ann")
	var acts int
	if err := p.pool.QueryRow(t.Context(), "SELECT count(*) FROM idem.audit").Scan(&acts); err != nil || acts != 0 {
		t.Errorf("%d acts, %v", acts, err)
	}
}

func TestPageReadsItselfAgainAndLeavesFormsAlone(t *testing.T) {
	t.Parallel()
	p, _ := openUI(t)
	p.open("operations")
	p.says("must not happen twice")
	p.fill("[name=name]", "half typed")
	if _, err := p.pool.Exec(t.Context(), "UPDATE idem.operations SET reason_text = 'another reason' WHERE state = 'parked'"); err != nil {
		t.Fatal(err)
	}
	p.says("another reason")
	if typed, err := chromedp.Run(p.tab, chromedp.Evaluate[string](`document.querySelector("[name=name]").value`)); err != nil || typed != "half typed" {
		t.Errorf("the field has %q, %v", typed, err)
	}
	p.click("#pause")
	p.says("Paused")
}

// sizes are those of a phone, less the bars of its browser, of a tablet and of a laptop.
var sizes = [][2]int64{{390, 664}, {768, 1024}, {1280, 720}}

// wantInView fails the test unless the reason and the next step are visible without scrolling.
func (p *page) wantInView() {
	p.t.Helper()
	found, err := chromedp.Run(p.tab, chromedp.Evaluate[string](`innerWidth + " pixels" + [".reason", ".next"].filter((selector) => {
		const e = document.querySelector("#live " + selector), box = e?.getBoundingClientRect();
		const seen = e && document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
		return !(seen && e.contains(seen) && box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight && !e.innerText.includes("…"));
	}).map((selector) => ", not visible: " + selector).join("")`))
	if err != nil || strings.Contains(found, "not visible") {
		p.t.Errorf("%s, %v", found, err)
	}
}

func TestUI_ReasonAndNextStepNeedNoScrolling(t *testing.T) {
	t.Parallel()
	p, _ := openUI(t)
	for _, size := range sizes {
		p.do(chromedp.EmulateViewport(size[0], size[1]))
		p.open("operations")
		p.says("must not happen twice")
		p.wantInView()
		p.click("tbody a")
		p.says("Parked at step")
		p.wantInView()
	}
}

// A person who sees the page for the first time finds the session that blocks a key.
func TestUI_BlockerOfAKeyIsOneClickAway(t *testing.T) {
	t.Parallel()
	p, _ := openUI(t)
	root := blockKey(t, p.pool)
	for _, size := range sizes {
		p.do(chromedp.EmulateViewport(size[0], size[1]))
		p.open("")
		p.click(`#live a[href$="flight"]`)
		p.says(fmt.Sprintf("Blocked by process %d (psql of Ann)", root))
		p.says(fmt.Sprintf("pg_terminate_backend(%d)", root))
		p.wantInView()
	}
}

// blockKey leaves a key in progress until the end of the test. The call of the key waits for a
// session, which waits for another session, which is idle in its transaction. It returns the
// process id of the last.
func blockKey(t *testing.T, pool *pgxpool.Pool) (root uint32) {
	t.Helper()
	ctx := t.Context()
	open := func(application string) *pgxpool.Pool {
		return pgtest.Open(t, pool.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = application })
	}
	begin := func(application, sql string) pgx.Tx {
		tx, err := open(application).Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, sql)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE stock (sku) AS VALUES ('teapot'), ('samovar')"); err != nil {
		t.Fatal(err)
	}
	root = begin("psql of Ann", "UPDATE stock SET sku = sku WHERE sku = 'samovar'").Conn().PgConn().PID()
	report := begin("nightly report", "UPDATE stock SET sku = sku WHERE sku = 'teapot'")
	shop := open("shop")
	var group sync.WaitGroup
	t.Cleanup(group.Wait) // ctx is done by then
	group.Go(func() { _, _ = report.Exec(ctx, "UPDATE stock SET sku = sku WHERE sku = 'samovar'") })
	group.Go(func() {
		_, _ = idem.Do(ctx, shop, "tenant-1/POST %2Forders", "7f3c9a52-0d1e", idem.HashBytes(), func(tx pgx.Tx) (idem.Response, error) {
			_, err := tx.Exec(ctx, "UPDATE stock SET sku = sku WHERE sku = 'teapot'")
			return idem.Response{}, err
		})
	})
	waiting.Until(t, "two blocked sessions", func() (is bool) {
		const blocked = "SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
		if err := pool.QueryRow(ctx, blocked).Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is
	})
	return root
}
