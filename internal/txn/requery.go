package txn

import "context"

// Requery is Query, and makes the round trip again if the server asks for that: where transactions are serializable by default, a process that
// takes an operation up may be refused because others do, too.
func (e *Engine) Requery(ctx context.Context, requests ...Request) error {
	err := e.Query(ctx, requests...)
	for pause, left := RetryPause, 5; Rerunnable(err) && left > 0; left-- {
		if Sleep(ctx, pause.Next()) != nil {
			return err
		}
		err = e.Query(ctx, requests...)
	}
	return err
}
