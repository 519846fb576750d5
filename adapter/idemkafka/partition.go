package idemkafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/inbox"
)

// partition is how far one has come with a partition.
type partition struct {
	topic     string
	number    int32
	first     int64           // what was read first since it was assigned
	next      kgo.EpochOffset // behind all that was read
	committed int64
	paused    bool
}

func nameOf(topic string, number int32) string { return fmt.Sprintf("%s/%d", topic, number) }

func (r *run) put(record *kgo.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := nameOf(record.Topic, record.Partition)
	p := r.partitions[name]
	if p == nil {
		p = &partition{topic: record.Topic, number: record.Partition, first: record.Offset, committed: record.Offset}
		r.partitions[name] = p
	}
	p.next = kgo.EpochOffset{Epoch: record.LeaderEpoch, Offset: record.Offset + 1}
	id, key := inbox.Identify(r.config.Logger, "idemkafka: ConsumerConfig.ID", func() string { return r.config.ID(record) }, func() string { return string(record.Key) })
	message := inbox.Message{
		Source: record.Topic, ID: id, Key: key, Type: header(record, HeaderType),
		Headers: ownHeaders(record), Payload: record.Value, Deliveries: 1,
	}
	if record.Offset < p.first+int64(r.config.Window+r.config.Batch) {
		message.Deliveries = 2 // maybe: the process that had the partition before may have died of it
	}
	r.hand.Put(&held{Part: name, Seq: uint64(record.Offset), Delivery: record, Message: message})
}

// giveUp forgets partitions that are another's, who begins where the last commit was.
func (r *run) giveUp(lost map[string][]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, numbers := range lost {
		for _, number := range numbers {
			name := nameOf(topic, number)
			delete(r.partitions, name)
			r.hand.Drop(func(h *held) bool { return h.Part == name })
		}
	}
	r.client.ResumeFetchPartitions(lost)
}

// commit tells the group how far each partition is settled: up to the first message that is in the hand. A commit that fails
// is made again with the next one, and if it never succeeds, its messages are duplicates.
func (r *run) commit(ctx context.Context) {
	moved := r.moved()
	if len(moved) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	r.client.CommitOffsetsSync(ctx, moved, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		if err == nil {
			err = r.committed(moved, answer)
		}
		if err != nil && ctx.Err() == nil {
			r.config.Logger.Warn("idemkafka: cannot commit offsets", "consumer", r.name, "error", err)
		}
	})
}

// moved returns how far partitions are settled that have moved on since their last commit.
func (r *run) moved() map[string]map[int32]kgo.EpochOffset {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := map[string]kgo.EpochOffset{}
	for _, h := range r.hand.All() { // in the order of their offsets
		if _, known := first[h.Part]; !known {
			first[h.Part] = kgo.EpochOffset{Epoch: h.Delivery.LeaderEpoch, Offset: h.Delivery.Offset}
		}
	}
	moved := map[string]map[int32]kgo.EpochOffset{}
	for name, p := range r.partitions {
		lowest, waits := first[name]
		if !waits {
			lowest = p.next
		}
		r.pace(p, p.next.Offset-lowest.Offset)
		if lowest.Offset == p.committed {
			continue
		}
		if moved[p.topic] == nil {
			moved[p.topic] = map[int32]kgo.EpochOffset{}
		}
		moved[p.topic][p.number] = lowest
	}
	return moved
}

// pace stops reading a partition that is read too far beyond what is settled of it, until that is half as far.
func (r *run) pace(p *partition, ahead int64) {
	it := map[string][]int32{p.topic: {p.number}}
	switch window := int64(r.config.Window); {
	case !p.paused && ahead >= window:
		r.client.PauseFetchPartitions(it)
		p.paused = true
	case p.paused && ahead <= window/2:
		r.client.ResumeFetchPartitions(it)
		p.paused = false
	}
}

// committed notes what the group has taken, if it has taken all.
func (r *run) committed(moved map[string]map[int32]kgo.EpochOffset, answer *kmsg.OffsetCommitResponse) error {
	for _, topic := range answer.Topics {
		for _, one := range topic.Partitions {
			if err := kerr.ErrorForCode(one.ErrorCode); err != nil {
				return err
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, partitions := range moved {
		for number, next := range partitions {
			if p := r.partitions[nameOf(topic, number)]; p != nil {
				p.committed = next.Offset
			}
		}
	}
	return nil
}
