package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// The fates of a message of a world.
const (
	succeeds  = 's'
	isNamed   = 'n' // its first attempts fail, and are named
	isUnnamed = 'u' // the first calls with it fail without naming it
	hangs     = 'h' // the first call with it returns late
	isLate    = 'l' // is committed late
	restarts  = 'r' // the ownership is lost in the first call with it
	isAway    = 'a' // the first calls with it fail with RetryLater, with and without naming it
)

const fates = "snuhlra"

// world simulates a table and a broker for a scheduler, in virtual time.
type world struct {
	*scheduler
	config  *RelayConfig
	now     time.Time
	reads   int
	steps   int
	outage  int // the number of first calls that fail
	noLimit bool
	rows    []*row // by position, from 1
	flying  []flight
	tries   map[int64]int
	entered map[int64]int // the first read that returned a message
	wrong   []string
}

type row struct {
	db.Queued
	fate       rune
	commits    time.Time
	seenAt     int // the first read that could see it
	held, done bool
	attempts   int
	due        time.Time
	doneAt     time.Time
}

type flight struct {
	call   *call
	ends   time.Time
	result *result
}

func newWorld(keeps bool, batch, share int) *world {
	c := &RelayConfig{BatchSize: batch}
	if err := c.set(); err != nil {
		panic(err)
	}
	w := &world{config: c, now: time.Unix(1000, 0), tries: map[int64]int{}, entered: map[int64]int{}}
	w.scheduler = newScheduler(c, func(topic string) string { return topic[:1] }, &memory{limit: 1 << 20})
	w.keepsOrder, w.minQueue = keeps, share
	return w
}

func (w *world) add(topic, key string, fate rune) {
	r := &row{fate: fate, commits: w.now}
	r.Queued = db.Queued{Seq: int64(len(w.rows) + 1), ID: fmt.Sprint(len(w.rows) + 1), Topic: topic, Key: key, Octets: 10, CreatedAt: w.now}
	if fate == isLate {
		r.commits = w.now.Add(1200 * time.Millisecond)
	}
	w.rows = append(w.rows, r)
}

func (w *world) complain(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func (w *world) of(m *message) *row { return w.rows[m.Seq-1] }

func (r *row) visible(now time.Time) bool { return !r.done && !now.Before(r.commits) }

// begin begins a call. run ends it later.
func (w *world) begin(c *call) {
	f := flight{call: c, ends: w.now.Add(10 * time.Millisecond)}
	failed := map[string]error{}
	var err error
	lost := false
	ids := map[string]bool{}
	for _, m := range c.messages {
		r := w.of(m)
		w.check(m, c)
		if r.attempts > 0 && w.now.Before(r.due) {
			w.complain("%d is retried %v before its backoff ends", m.Seq, r.due.Sub(w.now))
		}
		if ids[m.ID] {
			w.complain("two messages of one ID")
		}
		ids[m.ID] = true
		w.tries[m.Seq]++
		switch tries := w.tries[m.Seq]; {
		case r.fate == isNamed && tries <= 2:
			failed[m.ID] = errors.New("named")
		case r.fate == isUnnamed && tries <= 4:
			err = errors.New("unnamed")
		case r.fate == isAway && tries < 8: // for more than a minute
			err = RetryLater(errors.New("away"), 0)
		case r.fate == isAway && tries < 10: // without a duration, and then with one
			failed[m.ID] = RetryLater(errors.New("away"), time.Duration(tries-8)*time.Second)
		case r.fate == hangs && tries == 1:
			f.ends = w.now.Add(80 * time.Second)
		case r.fate == restarts && tries == 1:
			f.ends, lost = w.now.Add(5*time.Second), true
		}
	}
	if w.keepsOrder {
		stuck := map[string]bool{}
		for _, m := range c.messages {
			if stuck[m.Key] = stuck[m.Key] || failed[m.ID] != nil; stuck[m.Key] {
				failed[m.ID] = errors.New("named")
			}
		}
	}
	if w.outage--; w.outage >= 0 {
		err = errors.New("outage")
	}
	if err == nil && len(failed) > 0 {
		err = &PublishError{failed}
	}
	f.result = newResult(messagesOf(c), err, false)
	w.flying = append(w.flying, f)
	if lost {
		w.lose()
	}
}

func messagesOf(c *call) (messages []Message) {
	for _, m := range c.messages {
		messages = append(messages, messageOf(&m.Queued))
	}
	return messages
}

// check checks the invariant for a message of a call.
func (w *world) check(m *message, c *call) {
	entered := w.entered[m.Seq]
	for _, r := range w.rows[:m.Seq-1] {
		if r.Topic != m.Topic || r.Key != m.Key || r.Key == "" || r.done || slices.Contains(w.pending.published, r.Seq) || r.seenAt == 0 || r.seenAt > entered {
			continue
		}
		if w.keepsOrder && slices.ContainsFunc(c.messages, func(o *message) bool { return o.Seq == r.Seq }) {
			continue
		}
		w.complain("%s/%s: %d is published before %d", m.Topic, m.Key, m.Seq, r.Seq)
	}
	for _, f := range w.flying {
		if f.call != c && slices.ContainsFunc(f.call.messages, func(o *message) bool { return o.Seq == m.Seq }) {
			w.complain("%d is in two calls", m.Seq)
		}
	}
}

// lose ends the ownership and begins another.
func (w *world) lose() {
	w.pending = pendingWrites{published: w.pending.published}
	w.write()
	w.restart(w.listHeld(), w.now)
}

func (w *world) listHeld() (held []db.HeldBack) {
	met := map[db.HeldKey]bool{}
	for _, r := range w.rows {
		if name := keyOf(&r.Queued); r.held && r.visible(w.now) && !met[name] {
			met[name] = true
			held = append(held, db.HeldBack{HeldKey: name, Attempts: r.attempts, Due: r.due.Sub(w.now)})
		}
	}
	return held
}

// write applies the pending writes of the scheduler.
func (w *world) write() {
	for _, seq := range w.pending.published {
		r := w.rows[seq-1]
		r.done, r.doneAt = true, w.now
	}
	for _, f := range w.pending.dead {
		w.complain("%d is dead", f.message.Seq)
	}
	for _, seq := range w.pending.held {
		w.rows[seq-1].held = true
	}
	for _, f := range w.pending.failed {
		r := w.rows[f.message.Seq-1]
		if f.count > 0 && !w.keepsOrder && r.fate != isNamed && r.fate != isUnnamed {
			w.complain("an attempt of %d is counted, which is %c", r.Seq, r.fate)
		}
		r.held, r.due = true, f.due
		r.attempts += f.count
	}
	w.pending = pendingWrites{}
}

// transact writes and then reads, as a worker does.
func (w *world) transact(p *readPlan) {
	w.write()
	w.reads++
	for _, r := range w.rows {
		if r.seenAt == 0 && r.visible(w.now) {
			r.seenAt = w.reads
		}
	}
	if p.held != nil {
		w.readHeld(p.held)
	}
	if p.list != nil {
		w.listWriters(p.list)
	}
	if p.read != nil {
		w.readRows(p.read)
	}
	w.apply(p, 0, w.now)
	enter := func(seq int64) {
		if w.entered[seq] == 0 {
			w.entered[seq] = w.reads
		}
	}
	for seq := range w.inMemory {
		enter(seq)
	}
	for _, seq := range w.pending.held {
		enter(seq)
	}
}

func (w *world) readHeld(read *db.ReadHeld) {
	for i, name := range read.Keys {
		for n, r := 0, 0; r < len(w.rows) && n < read.Runs[i]; r++ {
			if is := w.rows[r]; is.held && is.visible(w.now) && keyOf(&is.Queued) == name {
				row := is.Queued
				row.Attempts = is.attempts
				read.Messages = append(read.Messages, row)
				n++
			}
		}
	}
	slices.SortFunc(read.Messages, func(a, b db.Queued) int { return cmp.Compare(a.Seq, b.Seq) })
}

// listWriters lists a writer while any message is uncommitted.
func (w *world) listWriters(list *db.ListWriters) {
	if slices.ContainsFunc(w.rows, func(r *row) bool { return w.now.Before(r.commits) }) {
		list.Rows = append(list.Rows, db.Writer{Name: "late"})
	}
}

func (w *world) readRows(read *db.ReadMessages) {
	for _, r := range w.rows {
		if r.held || !r.visible(w.now) || len(read.Seqs) == read.Room {
			continue
		}
		inGap := false
		for i := range read.Lows {
			inGap = inGap || r.Seq >= read.Lows[i] && r.Seq <= read.Highs[i]
		}
		if r.Seq <= read.After && !inGap {
			continue
		}
		row := r.Queued
		row.Bare = slices.Contains(read.Topics, row.Topic) != read.Only
		read.Seqs, read.Messages = append(read.Seqs, row.Seq), append(read.Messages, row)
	}
}

// run runs until all messages are done, or until limit.
func (w *world) run(limit time.Duration) {
	for end := w.now.Add(limit); w.now.Before(end) && len(w.wrong) == 0; {
		for i := 0; i < len(w.flying); i++ {
			if f := w.flying[i]; !f.ends.After(w.now) {
				w.flying = slices.Delete(w.flying, i, i+1)
				w.callEnded(f.call, f.result, w.now)
				i--
			}
		}
		for _, c := range w.next(w.now) {
			w.begin(c)
		}
		if w.now.After(w.nextHeldList) {
			w.write()
			w.syncHeld(w.listHeld(), w.now)
			w.nextHeldList = w.now.Add(rereadPause)
		}
		for n, p := 0, w.plan(w.now, true); p != nil; n, p = n+1, w.plan(w.now, false) {
			if w.transact(p); n > 10*len(w.rows) {
				w.complain("it reads without end")
				return
			}
		}
		for _, c := range w.next(w.now) {
			w.begin(c)
		}
		w.write()
		if !slices.ContainsFunc(w.rows, func(r *row) bool { return !r.done }) {
			return
		}
		next := w.wake(w.now, w.now.Add(time.Second))
		for _, f := range w.flying {
			if f.ends.Before(next) {
				next = f.ends
			}
		}
		if w.now = w.now.Add(time.Microsecond); next.After(w.now) {
			w.now = next
		}
		if w.steps++; w.steps > 100_000 {
			w.complain("it spins")
		}
	}
}

// verify fails the test if a message is not done, or was delayed by an event at another
// destination.
func (w *world) verify(t *testing.T, what string) {
	t.Helper()
	began := time.Unix(1000, 0)
	slow := map[string]bool{}
	for _, r := range w.rows {
		if r.fate == hangs || r.fate == isAway {
			slow[r.Topic[:1]] = true
		}
	}
	for _, r := range w.rows {
		switch limit := 60 * time.Second; {
		case !r.done:
			w.complain("%d of %s is not done", r.Seq, r.Topic)
		case !w.noLimit && !slow[r.Topic[:1]] && r.doneAt.Sub(began) > limit:
			w.complain("%d of %s is done after %v", r.Seq, r.Topic, r.doneAt.Sub(began))
		}
	}
	if w.calls != 0 || len(w.inMemory) != 0 || w.memory.used != 0 || w.memory.large != nil {
		w.complain("%d calls, %d messages and %d bytes are left", w.calls, len(w.inMemory), w.memory.used)
	}
	if len(w.wrong) > 0 {
		t.Fatalf("%s:\n%s", what, strings.Join(w.wrong, "\n"))
	}
}

// The test combines all events for the messages of a key with events for another key and at another
// destination, in virtual time.
func TestScheduler_KeepsTheInvariant(t *testing.T) {
	t.Parallel()
	shares := []int{2, 100}
	if testing.Short() {
		shares = shares[:1]
	}
	for _, keeps := range []bool{false, true} {
		for _, share := range shares {
			each(len(fates), 4, func(is []int) {
				w := newWorld(keeps, 4, share)
				fate := func(i int) rune { return rune(fates[is[i]%len(fates)]) }
				is = append(slices.Clone(is), is[0]+is[1]+2*is[3]) // the fate of a/l, in all combinations with others
				for n := range 3 {
					w.add("a", "k", fate(n))
					w.add("a", "l", []rune{succeeds, fate(4), succeeds}[n])
					w.add("b", "k", []rune{fate(3), succeeds, succeeds}[n])
					w.add("b", "l", succeeds)
				}
				w.run(10 * time.Minute)
				w.verify(t, fmt.Sprintf("keeps %v, share %d, fates %c%c%c of a/k, %c of a/l, %c of b/k",
					keeps, share, fate(0), fate(1), fate(2), fate(4), fate(3)))
			})
		}
	}
}

// each calls f with all numbers of a number of digits.
func each(base, digits int, f func([]int)) {
	is := make([]int, digits)
	for {
		f(is)
		i := 0
		for i < digits && is[i] == base-1 {
			is[i] = 0
			i++
		}
		if i == digits {
			return
		}
		is[i]++
	}
}

// There are backlogs, and messages that arrive meanwhile.
func TestScheduler_KeepsTheInvariantAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(seed%2 == 0, 1+random.IntN(20), 1+random.IntN(20))
		some := func(n int) {
			for range n {
				fate := rune(succeeds)
				if random.IntN(10) == 0 {
					fate = rune(fates[random.IntN(len(fates))])
				}
				key := ""
				if random.IntN(8) > 0 {
					key = fmt.Sprint(random.IntN(1 + random.IntN(30)))
				}
				w.add(string(rune('a'+random.IntN(1+random.IntN(5))))+fmt.Sprint(random.IntN(2)), key, fate)
			}
		}
		some(300)
		for range 20 {
			w.run(time.Duration(random.IntN(2000)) * time.Millisecond)
			some(random.IntN(20))
		}
		w.run(3 * time.Hour)
		w.noLimit = true
		w.verify(t, fmt.Sprint("seed ", seed))
	}
}

// A message that is due waits for the call in progress of its destination, but not for its backlog.
func TestScheduler_RetriesInTimeBesideABacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(false, 10, 10)
	w.add("a", "k", isNamed)
	for n := range 2000 {
		w.add("a", fmt.Sprint(n), succeeds)
	}
	w.run(time.Hour)
	w.verify(t, "backlog")
	last := w.rows[len(w.rows)-1].doneAt
	if took := w.rows[0].doneAt.Sub(time.Unix(1000, 0)); took > 1700*time.Millisecond { // two backoffs, of 0.5 and 1 s
		t.Errorf("it was published after %v, the backlog took %v", took, last.Sub(time.Unix(1000, 0)))
	}
	if last.Before(w.rows[0].doneAt) {
		t.Error("the backlog was shorter than the backoffs")
	}
}

// A message of a key fails. The next message of the key is far behind in the backlog, unread. Then
// a third one is added. The backlog lasts longer than the backoffs.
func TestScheduler_KeepsOrderOfAKeyBeyondABacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(false, 10, 10)
	w.add("a", "k", isNamed)
	for n := range 3000 {
		w.add("a", fmt.Sprint(n), succeeds)
	}
	w.add("a", "k", succeeds)
	w.run(100 * time.Millisecond)
	w.add("a", "k", succeeds)
	w.add("b", "k", succeeds)
	w.run(time.Hour)
	w.verify(t, "backlog")
}

// A key with very many messages blocks no other key.
func TestScheduler_LongKeyBlocksNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(false, 100, 100)
	for range 300 {
		w.add("a", "long", succeeds)
	}
	w.add("a", "k", succeeds)
	w.run(time.Hour)
	w.verify(t, "long key")
	if k := w.rows[300].doneAt; !k.Before(w.rows[100].doneAt) {
		t.Errorf("the other key was published after %v", k.Sub(time.Unix(1000, 0)))
	}
}

// A Publisher names messages by their IDs.
func TestScheduler_SeparatesMessagesWithTheSameID(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		w := newWorld(keeps, 10, 10)
		for n := range 9 {
			w.add("a", fmt.Sprint(n%3), succeeds)
			w.rows[n].ID = fmt.Sprint(n / 2)
		}
		w.run(time.Minute)
		w.verify(t, "IDs")
	}
}

// All messages are published after the outage.
func TestScheduler_CountsNothingInAnOutage(t *testing.T) {
	t.Parallel()
	for calls := range 80 {
		w := newWorld(false, 4, 4)
		for n := range 12 {
			w.add("a", fmt.Sprint(n%6), succeeds)
		}
		w.outage, w.noLimit = calls, true
		w.run(time.Hour)
		w.verify(t, fmt.Sprint(calls, " calls"))
	}
}

// An administrator has copied rows that are marked as held from another database.
func TestScheduler_FindsRowsThatOthersHold(t *testing.T) {
	t.Parallel()
	w := newWorld(false, 4, 4)
	w.run(time.Second)
	w.add("a", "k", succeeds)
	w.rows[0].held = true
	w.run(time.Minute)
	w.verify(t, "a row")
}

// More messages are due all the time.
func TestDelayed_RereadsForLateCommits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	d := delayed{due: now}
	for whole := now; now.Before(time.Unix(1010, 0)); now = now.Add(5 * time.Millisecond) {
		m := d.move(now, 1000)
		if m == nil {
			t.Fatal("nothing is moved, although something is due")
		}
		if m.FromMoment.IsZero() {
			whole = now
		}
		if now.Sub(whole) > 2*minQueryPause {
			t.Fatalf("a message that was committed late was not looked for in %v", now.Sub(whole))
		}
		m.Mine, m.Moved, m.Until = true, 1000, now
		d.moved(m, 4*time.Millisecond, now)
	}
}
