package vitals

import (
	"time"

	"github.com/idem-go/idem/internal/vitals/db"
)

// Operations are those that are not over.
type Operations struct {
	Running   int64         `json:"running"`
	Parked    int64         `json:"parked"`
	ParkedFor time.Duration `json:"parked_for"` // since the earliest step was begun at which one is parked; 0 if none is
	Late      time.Duration `json:"late"`       // for how long one has been due that no process works on; 0 if there is none
}

// operationsOf makes a figure of what is known of the operations. That they cannot be read is no error of the reader's.
func operationsOf(row db.OperationsRow, err error) (Figure[Operations], error) {
	if err != nil {
		return unread[Operations](err, "idem.operations and idem.leases", "there is no such table idem.operations")
	}
	return exact(Operations{
		Running: row.Running, Parked: row.Parked,
		ParkedFor: time.Duration(row.ParkedFor) * time.Microsecond, Late: time.Duration(row.Late) * time.Microsecond,
	}), nil
}
