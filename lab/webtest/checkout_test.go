package webtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the page shows about the steps of a purchase that is paid by card.
const (
	allSteps = "reserve: done charge: done confirm: done"
	inCharge = "reserve: done charge: in progress"
)

func TestPage_KilledServiceCompletesTheOrder(t *testing.T) {
	t.Parallel()
	p := openPage(t)
	p.set("paid", "card")
	p.click("[name=bankSlow]")
	p.click("#pay")
	p.wantSteps(inCharge)
	p.waitFor(`document.querySelectorAll("#charges tr").length === 1`) // the card is charged, and the service has no answer yet
	p.click("#kill")
	p.wantSteps(allSteps)                 // without another request
	p.wantOneOrder("1 attempt → 1 order") // the browser does not know that yet
	p.waitFor(`!document.querySelector(".waiting")`)
	p.click("#retry")
	p.waitFor(`document.querySelector("#purchases li:last-child .seen").innerText === "` + replayed + `"`)
	p.wantOneOrder("2 attempts → 1 order")
	p.wantCharges(charge{Cents: 9800, Asked: 2})
}

// wantSteps waits until the page shows this about the steps of the only purchase.
func (p *page) wantSteps(want string) {
	p.t.Helper()
	text, err := json.Marshal(want)
	if err != nil {
		p.t.Fatal(err)
	}
	p.waitFor(`[...document.querySelectorAll(".steps .badge")].map((step) => step.innerText).join(" ") === ` + string(text))
}

// charge is a row of the bank's ledger.
type charge struct {
	Cents int `json:"amount_cents"`
	Asked int `json:"asked"`
}

// wantCharges fails the test unless the bank's ledger has these rows, and the page shows as many.
func (p *page) wantCharges(want ...charge) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.tab, http.MethodGet, p.url+"/charges", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer acme-key")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	var got []charge
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		p.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("the bank's ledger (-want +got):\n%s", diff)
	}
	p.waitFor(fmt.Sprintf(`document.querySelectorAll("#charges tr").length === %d`, len(want)))
}
