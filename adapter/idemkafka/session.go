package idemkafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/pull"
)

const commitWithin = 5 * time.Second

type delivery = pull.Delivery[*kgo.Record]

// session is a member of the consumer group. A rebalance can happen only during Receive. franz-go
// blocks rebalances from the end of a poll until the next Receive, so that a batch is handled and
// its offsets are committed before its partitions are revoked.
type session struct {
	*Consumer
	client *kgo.Client

	mu         sync.Mutex
	partitions map[partitionID]*partition
}

type partitionID struct {
	topic  string
	number int32
}

// partition is the state of an assigned partition, from the first message that the session
// receives.
type partition struct {
	first     int64 // the offset of the first received message
	last      *kgo.Record
	committed int64 // the committed offset: each message before it is settled
	paused    bool
	revoked   atomic.Bool
}

func (c *Consumer) open(context.Context) (pull.Session[*kgo.Record], error) {
	s := &session{Consumer: c, partitions: map[partitionID]*partition{}}
	var err error
	opts := append(c.opts[:len(c.opts):len(c.opts)], kgo.OnPartitionsRevoked(s.revoke), kgo.OnPartitionsLost(s.revoke))
	s.client, err = kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pull.ErrPermanent, err)
	}
	return s, nil
}

// Close leaves the group.
func (s *session) Close() { s.client.CloseAllowingRebalance() }

// Receive implements pull.Session.
func (s *session) Receive(ctx context.Context, limit int, wait time.Duration) ([]*delivery, error) {
	s.client.AllowRebalance()
	polling, cancel := context.WithTimeout(ctx, max(wait, time.Millisecond))
	defer cancel()
	if limit == 0 {
		<-polling.Done() // the poll then returns no records; it is only needed to block rebalances again
	}
	fetches := s.client.PollRecords(polling, limit)
	fetches.EachError(func(topic string, number int32, err error) {
		if polling.Err() == nil || !errors.Is(err, polling.Err()) {
			s.loop.Logger.Warn("idemkafka: cannot fetch", "consumer", s.loop.Name,
				"topic", topic, "partition", number, "error", err)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	received := make([]*delivery, 0, fetches.NumRecords())
	fetches.EachRecord(func(record *kgo.Record) { received = append(received, s.delivery(record)) })
	return received, nil
}

func (s *session) delivery(record *kgo.Record) *delivery {
	id := partitionID{record.Topic, record.Partition}
	p := s.partitions[id]
	if p == nil {
		p = &partition{first: record.Offset, committed: record.Offset}
		s.partitions[id] = p
	}
	p.last = record
	d := &delivery{Raw: record, Revoked: &p.revoked, Message: inbox.Message{
		Source: record.Topic, Type: header(record, HeaderType), Headers: ownHeaders(record),
		Payload: record.Value, Deliveries: 1,
	}}
	if record.Offset < p.first+s.window+int64(s.loop.Batch) {
		d.Message.Deliveries = 2 // possibly a redelivery: the process that had the partition before may have died of this message
	}
	return d
}

// revoke revokes the deliveries of partitions that are assigned to another member, and forgets
// these partitions. The other member begins at the committed offset.
func (s *session) revoke(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, numbers := range lost {
		for _, number := range numbers {
			id := partitionID{topic, number}
			if p := s.partitions[id]; p != nil {
				p.revoked.Store(true)
			}
			delete(s.partitions, id)
		}
	}
	s.client.ResumeFetchPartitions(lost)
}

// Settle commits for each partition the offset of the first message that is not settled. If a
// commit fails, the next Settle commits again. If no commit succeeds, Kafka delivers the messages
// again, and the inbox recognizes the duplicates.
func (s *session) Settle(ctx context.Context, held []*delivery) error {
	moved := s.moved(held)
	if len(moved) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	if err := s.client.CommitRecords(ctx, moved...); err != nil {
		s.loop.Logger.Warn("idemkafka: cannot commit offsets", "consumer", s.loop.Name, "error", err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, last := range moved {
		if p := s.partitions[partitionID{last.Topic, last.Partition}]; p != nil {
			p.committed = last.Offset + 1
		}
	}
	return nil
}

// moved returns one record for each partition whose settled offset has changed since the last
// commit: the record before the first unsettled record, or the last record if all are settled.
// moved also pauses a partition that was read too far beyond its first unsettled record, and
// resumes it later: see limit.
func (s *session) moved(held []*delivery) (moved []*kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := map[partitionID]*kgo.Record{}
	for _, d := range held {
		id := partitionID{d.Raw.Topic, d.Raw.Partition}
		if _, settled := d.Outcome(); !settled && first[id] == nil {
			first[id] = d.Raw
		}
	}
	for id, p := range s.partitions {
		last := p.last
		if waiting := first[id]; waiting != nil {
			last = &kgo.Record{
				Topic: id.topic, Partition: id.number, LeaderEpoch: waiting.LeaderEpoch, Offset: waiting.Offset - 1,
			}
		}
		s.limit(id, p, p.last.Offset-last.Offset)
		if last.Offset+1 != p.committed {
			moved = append(moved, last)
		}
	}
	return moved
}

// limit pauses a partition that was read a whole window beyond its first unsettled message. It
// resumes the partition when the partition was read at most half a window beyond that message.
func (s *session) limit(id partitionID, p *partition, ahead int64) {
	topics := map[string][]int32{id.topic: {id.number}}
	switch {
	case !p.paused && ahead >= s.window:
		s.client.PauseFetchPartitions(topics)
		p.paused = true
	case p.paused && ahead <= s.window/2:
		s.client.ResumeFetchPartitions(topics)
		p.paused = false
	}
}
