package command_test

import "github.com/idem-go/idem"

// Names of the records of keep.
const (
	scope     = "tenant-1/POST %2Forders"
	placed    = "7f3c9a52-0d1e-4b6a-9a51-2f1be0c7d111"
	declined  = "8a11c0de-5f00-4d2c-8c3b-6f3c9a520d1e"
	forgotten = "9b22d1ef-6a11-4e3d-9d4c-7a4dab631e2f"
	left      = "ac33e2f0-7b22-4f4e-ae5d-8b5ebc742f30"
	brief     = "short"

	placedID = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"
	leftID   = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a13"

	order = `{"sku": "teapot", "client_time": 1}`
)

// keep stores a record of every kind. Their ages are formatted alike for half an hour.
func (d *desk) keep() {
	d.t.Helper()
	hash, err := idem.HashJSON([]byte(order), idem.Without("/client_time"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, r := range []struct {
		scope, key, id, age, ttl, state string
		status                          any
		header, body                    any
	}{
		{scope, placed, placedID, "1 hour", "3 days", "completed", 201, `{"Content-Type": ["application/json"], "X-Order": ["1", "2"]}`, `{"order":1,"note":"secret"}`},
		{scope, declined, "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a11", "2 hours", "3 days", "failed", 402, nil, "declined\x1b[31m"},
		{scope, forgotten, "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a12", "9 days", "3 days", "completed", 200, nil, nil},
		{scope, left, leftID, "1 day", "3 days", "processing", nil, nil, nil},
		{"tenant-2/refund", brief, "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a14", "5 hours", "3 days", "completed", 200, nil, "ok"},
	} {
		d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, header, body)
			VALUES ($1, $2, $3, $4, now() - interval '30 min' - $5::interval, now() + interval '30 min' - $5::interval + $6::interval,
				$7, $8, CASE WHEN $7 <> 'processing' THEN now() - $5::interval END, $9::text::jsonb, convert_to($10::text, 'UTF8'))`,
			r.scope, r.key, hash[:], r.id, r.age, r.ttl, r.state, r.status, r.header, r.body)
	}
}
