package workload

import (
	"encoding/json"

	"github.com/idem-go/idem/lab/torture/history"
)

// Answer is the body of every response. It names the call and the run of fn that produced it, so
// that a checker can tell to which execution a response belongs.
type Answer struct {
	Maker   history.Op `json:"maker"`
	Run     int        `json:"run"`
	Padding string     `json:"padding"`
}

func (a Answer) encode() []byte {
	body, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return body
}

func decode(body []byte) (a Answer, err error) {
	err = json.Unmarshal(body, &a)
	return a, err
}
