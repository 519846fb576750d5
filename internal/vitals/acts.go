package vitals

import (
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/vitals/db"
)

// Acts are how often people did something.
type Acts struct {
	Act   string `json:"act"`
	Times int64  `json:"times"` // up to MaxMessages, all acts together
}

// acts are those that there are.
var acts = []store.Act{store.Cancel, store.Drop, store.Evict, store.Forget, store.Redrive, store.Resolve, store.Retry}

// actsOf makes a figure of what people did. That it cannot be read is no error of the reader's.
func actsOf(rows []db.ActsRow, err error) (Figure[[]Acts], error) {
	if err != nil {
		return unread[[]Acts](err, "idem.audit", "there is no such table idem.audit")
	}
	times := map[string]int64{}
	for _, row := range rows {
		times[row.Act] = row.Times
	}
	var all []Acts
	for _, act := range acts {
		all = append(all, Acts{string(act), times[string(act)]})
	}
	return exact(all), nil
}
