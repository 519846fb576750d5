package store

import (
	"encoding/binary"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

var sampleKey = NewKey("the scope", "the key", [32]byte{1, 2, 3}, "11111111-2222-4333-8444-555555555555", 90*time.Second)

// asSent has, by the names of sqlc's fields, what the sample requests carry. No two are alike.
var asSent = map[string]string{
	"Scope": "the scope", "Key": "the key", "Hash": string(append([]byte{1, 2, 3}, make([]byte, 29)...)),
	"OperationID": "11111111-2222-4333-8444-555555555555", "Ttl": "90000000 microseconds", "Patience": "20ms",
	"Lock": strconv.FormatInt(LockOf("the scope", "the key"), 10), "MaxLocks": "32",
	"State": "failed", "Status": "402", "Header": `{"A":["b"]}`, "Body": "the body", "SealedBy": "the sealing key",
	"LockHigh": "4294967295", "LockLow": "4294967294",

	"Names": `{"the name","na\\me, \"2\""}`, "Running": `{"u1","u2"}`, "Slot": "1", "Instances": `{18,19}`, "OperationIds": `{"u1","u2"}`, "Epochs": `{"2","3"}`, "But": `{"u1/2","u2/3"}`, "Input": "the input", "Claimed": "946684807000000 microseconds",
	"Owner": "11", "Undoing": "true", "Cancel": "true", "Forget": "false", "Unknown": "true", "Fresh": "true", "Parent": "88888888-7777-4888-8999-000000000000", "Unbacked": "true", "Cancelled": "true", "Step": "the step", "Seq": "12", "Pause": "13000000 microseconds", "Tries": "14", "Epoch": "15",
	"Kind": "call", "Outcome": "waiting", "Value": "the value", "Room": "16", "Reason": "the reason", "Instance": "17",
	"Name": "the name", "Sweeper": "77777777-7777-4888-8999-000000000000", "Absence": "15s", "Rest": "16s", "WaitingFor": "the vacuum",
	"FromMoment": "2026-01-02T03:04:05.000007Z",
	"Act":        "drop", "Person": "the person", "MessageID": "the id",
	"Relay": "the relay", "Generation": "1018", "Seen": "1019", "Every": "false", "ForeignTopics": `{"foreign"}`, "Counts": "{1,0}",
	"After": "1010", "Streams": "3", "Stream": "2", "Octets": "1011", "Topics": `{"the topic","an\\other"}`, "Keys": `{"the key",""}`,
	"Seqs": "{1012,1013}", "Lows": "{1014,1016}", "Highs": "{1015,1017}", "Runs": "{1,16}", "Retention": "90000000 microseconds", "Whole": "true", "Pauses": "{19000000,20000000}",
	"Classes": `{"the class","another"}`, "Reasons": `{"the reason","another"}`, "Class": "the class", "Attempts": "18", "Payload": "the payload",
	"Headers": `{"E":"f"}`, "Type": "the type", "Most": "22", "Lanes": "{0,2}", "Alone": "true", "Hindered": "33", "Side": "the side", "Consumer": "the consumer", "Source": "so\\ur\"ce", "ID": "the id",
	"OnlySide": "only the side", "OnlyConsumer": "only the consumer", "OnlySource": "only the source",
	"AfterSide": "after the side", "AfterConsumer": "after the consumer", "AfterSource": "after the source", "AfterID": "after the id",
	"AfterOperation": "11111111-2222-4333-8444-555555555555", "Age": "12000000 microseconds",
	"Sources": `{"so\\ur\"ce"}`, "Ids": `{"the id"}`, "Hashes": string(append([]byte{1, 2, 3}, make([]byte, 29)...)),
	"Part": "the part", "Relation": "the relation", "Block": "1000", "Pages": "1001", "TotalPages": "1002",
	"Deleted": "1003", "Kept": "1004", "Skipped": "1005", "LockLimit": "1006", "WorkLimit": "1007", "IdleLimit": "1008", "Oid": "1009",
}

var sampleAct = NoteAct{
	Act: Drop, Outcome: "waiting", Person: "the person", Reason: "the reason", OperationID: sampleID, Step: "the step", Scope: "the scope", Key: "the key",
	Letter: sampleName,
}

// differently are the parameters of one verb that other verbs use for something else.
var differently = map[string]map[string]string{
	"Hold":             {"Room": "1000 years"},
	"BeginMessages":    {"Patience": "1500"},
	"EnterMessages":    {"Keys": `{"the key"}`},
	"FailingMessages":  {"Sources": `{"s1","s2"}`, "Keys": `{"k1","k2"}`},
	"BeginOperation":   {"Ttl": "90000000"},
	"AdvanceOperation": {"State": "running"},
	"BuryUnpublished":  {"Seq": "1012"},
	"ReadMessages":     {"Room": "23"},
	"ReadHeld":         {"Lows": "{0,1013}", "Highs": "{9223372036854775807,1013}"},
	"KeepLanes":        {"Lanes": "16"},
	"ListDeadLetters":  {"Room": "24"},
	"ListOperations":   {"State": "running"},
}

// answers has, by the names of sqlc's fields, what the sample answers carry. No two of one type are alike.
var answers = map[string]any{
	"SameHash": true, "Held": true, "Holds": true,
	"OperationID": "66666666-7777-4888-8999-000000000000", "Previous": "the previous claim", "State": "completed",
	"Claim": "the claim", "Locks": "the locks", "LockTimeout": "the lock timeout",
	"Hash": append([]byte{4, 5, 6}, make([]byte, 29)...), "Scope": "its scope", "Key": "its key", "Name": "its name", "Step": "its step", "Reason": "its reason", "Kind": "tx", "Outcome": "done", "Parent": "99999999-7777-4888-8999-000000000000",
	"Ttl": int64(90000000), "Input": []byte("its input"), "Value": []byte("its value"), "Undoing": true, "Cancelled": true, "Accepted": true, "Known": true,
	"Epoch": int32(21), "Seq": int32(22), "Tries": int32(23), "Attempts": int32(24), "Instance": int32(25), "Backend": int32(26),
	"EndedAt": moment(14), "Idle": "5", "Pause": "2", "Count": "3", "Patience": "10s", "Unlimited": "0",
	"DueAt": moment(6), "SentAt": moment(13), "WakeAt": moment(7), "RecordedAt": moment(8),
	"Status": int32(201), "One": int32(1), "Header": []byte(`{"C":["d"]}`), "Body": []byte{0, '\\', 'x', 255}, "SealedBy": "the key it is sealed with",
	"Begun": int32(27), "Deaths": int32(29), "Slot": int32(2), "Owners": "30,31", "Abandoned": true, "Gone": "32,33", "Alone": int32(28), "Hindered": int32(30),
	"Failing": int64(2010), "FailingSince": moment(9),
	"Quoted": "the quoted name", "Part": "the next part", "Relation": int64(2000), "Block": int64(2001),
	"Pages": int64(2002), "TotalPages": int64(2003), "LastPages": int64(2004), "LastDeleted": int64(2005), "Remaining": int64(2009),
	"Lag": int64(2006), "Standby": "the standby", "Hidden": int64(2007), "Dead": int64(2008),
	"ID": "its id", "Topic": "its topic", "Type": "its type", "Payload": []byte("its payload"), "Headers": `{"G":"h"}`, "Place": int64(2009), "Due": int64(30_000_000),
	"Xmin": int64(2011), "Xmax": int64(2012), "WorkLimit": "1", "LockLimit": "2", "Seqscan": "off", "Bitmapscan": "none", "Indexscan": "on", "Jit": "3", "Absence": "60s",
	"Took": int64(31_000_000), "Moved": int64(2016), "Until": moment(15), "Overdue": moment(16), "NextDue": moment(17), "Delayed": int64(2018),
	"ReadAt": moment(9), "Oldest": moment(10), "OldestHeld": moment(11), "Waiting": int64(2012), "HeldKeys": int64(2014),
	"Relay": "its relay", "Generation": int64(2015), "Topics": `["one","two*"]`, "Fresh": true, "None": true,
	"Free": true, "Mine": true, "Lane": int32(27), "Side": "its side", "Consumer": "its consumer", "Source": "its source", "Class": "its class", "DiedAt": moment(12),
	"CreatedAt": moment(1), "CompletedAt": moment(2), "ExpiresAt": moment(3), "LoadedAt": moment(4), "Since": moment(5),
}

var sampleSweeper = Sweeper{Name: "the name", ID: "77777777-7777-4888-8999-000000000000"}

// moment is a time as timestamptz_send gives it: n seconds after the beginning of the year 2000.
func moment(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)*1_000_000) }

func at(n int) time.Time { return time.Date(2000, 1, 1, 0, 0, n, 0, time.UTC) }

var sampleTrue = true

const (
	sampleID     = "11111111-2222-4333-8444-555555555555"
	sampleParent = "99999999-7777-4888-8999-000000000000"
)

var sampleAt = At{Kind: CallStep, Step: "the step", Seq: 12, Pause: 13 * time.Second, Owner: 11, Tries: 14}

// sampleTaken is what the sample answers tell of an operation.
var sampleTaken = Taken{OperationID: "66666666-7777-4888-8999-000000000000", Scope: "its scope", Key: "its key", Name: "its name",
	Hash: [32]byte{4, 5, 6}, TTL: 90 * time.Second, Input: []byte("its input"), Epoch: 21, Undoing: true, Cancelled: true, Accepted: true, Step: "its step", Seq: 22, Tries: 23, Attempts: 24, Deaths: 29, Parent: sampleParent,
	CreatedAt: at(1), Since: at(5), LoadedAt: at(4)}

// list is a Lister that does not change.
type list []string

func (l list) List() []string { return l }

// verbs are all requests of the package, by the names of their queries, with sqlc's structs for them.
var verbs = []struct {
	name      string
	request   request
	statement *roundtrip.Statement
	sql       string
	params    any
	row       any // nil if nothing is read from it
	want      any // the request, once it has read answers
}{
	{"Claim", &Claim{Key: &sampleKey}, claim, db.Claim, db.ClaimParams{}, db.ClaimRow{},
		&Claim{Key: &sampleKey, Claimed: true, CreatedAt: at(1), ExpiresAt: at(3)}},
	{"ClaimAtOnce", &Claim{Key: &sampleKey, AtOnce: true}, claimAtOnce, db.ClaimAtOnce, db.ClaimAtOnceParams{}, db.ClaimAtOnceRow{},
		&Claim{Key: &sampleKey, AtOnce: true, Claimed: true, CreatedAt: at(1), ExpiresAt: at(3), Previous: "the previous claim"}},
	{"TakeOver", &TakeOver{Key: &sampleKey}, takeOver, db.TakeOver, db.TakeOverParams{}, db.TakeOverRow{},
		&TakeOver{Key: &sampleKey, Claimed: true, CreatedAt: at(1), ExpiresAt: at(3), Previous: "the previous claim"}},
	{"Load", &Load{Key: &sampleKey}, load, db.Load, db.LoadParams{}, db.LoadRow{},
		&Load{Key: &sampleKey, Found: true, Record: Record{
			SameHash: true, OperationID: "66666666-7777-4888-8999-000000000000", State: Completed, Status: 201,
			Header: map[string][]string{"C": {"d"}}, Body: []byte{0, '\\', 'x', 255}, SealedBy: "the key it is sealed with", Closed: true,
			CreatedAt: at(1), CompletedAt: at(2), ExpiresAt: at(3), LoadedAt: at(4)}}},
	{"Complete", &Complete{Key: &sampleKey, State: Failed, Status: 402, Header: []byte(`{"A":["b"]}`), Body: []byte("the body"), SealedBy: "the sealing key"},
		complete, db.Complete, db.CompleteParams{}, db.CompleteRow{},
		&Complete{Key: &sampleKey, State: Failed, Status: 402, Header: []byte(`{"A":["b"]}`), Body: []byte("the body"), SealedBy: "the sealing key",
			Recorded: true, CompletedAt: at(2), ExpiresAt: at(3)}},
	{"Holds", &Holds{Key: &sampleKey}, holds, db.Holds, struct{ OperationID string }{}, struct{ Holds bool }{},
		&Holds{Key: &sampleKey, Held: true}},
	{"Holder", &Holder{Lock: -2}, holder, db.Holder, db.HolderParams{}, db.HolderRow{},
		&Holder{Lock: -2, Held: true, Since: at(5)}},
	{"Live", &Live{Scope: "the scope", Key: "the key"}, live, db.Live, db.LiveParams{}, db.LiveRow{},
		&Live{Scope: "the scope", Key: "the key", Found: true, Record: Record{
			State: Completed, OperationID: "66666666-7777-4888-8999-000000000000",
			CreatedAt: at(1), CompletedAt: at(2), ExpiresAt: at(3)}}},
	{"Calm", Calm{}, calm, db.Calm, struct{}{}, nil, Calm{}},
	{"Reclaim", Reclaim{"11111111-2222-4333-8444-555555555555"}, reclaim, db.Reclaim, struct{ OperationID string }{}, nil,
		Reclaim{"11111111-2222-4333-8444-555555555555"}},

	{"Hold", &Hold{Key: &sampleKey, Room: Held}, hold, db.Hold, db.HoldParams{}, struct{ One int32 }{},
		&Hold{Key: &sampleKey, Room: Held, Done: true}},
	{"BeginOperation", &BeginOperation{Key: &sampleKey, Name: "the name", TTL: 90 * time.Second, ClaimedAt: at(7), Input: []byte("the input"), Parent: "88888888-7777-4888-8999-000000000000", At: sampleAt},
		beginOperation, db.BeginOperation, db.BeginOperationParams{}, nil,
		&BeginOperation{Key: &sampleKey, Name: "the name", TTL: 90 * time.Second, ClaimedAt: at(7), Input: []byte("the input"), Parent: "88888888-7777-4888-8999-000000000000", At: sampleAt}},
	{"AdvanceOperation", &AdvanceOperation{OperationID: sampleID, Epoch: 15, State: OperationRunning, Undoing: true, Cancelled: &sampleTrue, At: sampleAt},
		advanceOperation, db.AdvanceOperation, db.AdvanceOperationParams{}, struct{ One int32 }{},
		&AdvanceOperation{OperationID: sampleID, Epoch: 15, State: OperationRunning, Undoing: true, Cancelled: &sampleTrue, At: sampleAt, Advanced: true}},
	{"RecordStep", &RecordStep{OperationID: sampleID, Pause: 13 * time.Second, Step: sampleStep}, recordStep, db.RecordStep, db.RecordStepParams{}, nil,
		&RecordStep{OperationID: sampleID, Pause: 13 * time.Second, Step: sampleStep}},
	{"LoadSteps", &LoadSteps{OperationID: sampleID}, loadSteps, db.LoadSteps, struct{ OperationID string }{}, db.LoadStepsRow{},
		&LoadSteps{OperationID: sampleID, LoadedAt: at(4),
			Steps: []Step{{Seq: 22, Kind: TxStep, Name: "its name", Outcome: StepDone, Value: []byte("its value"), DueAt: at(6)}}}},
	{"ListSteps", &ListSteps{OperationID: sampleID}, listSteps, db.ListSteps, struct{ OperationID string }{}, db.ListStepsRow{},
		&ListSteps{OperationID: sampleID,
			Steps: []Remembered{{Kind: TxStep, Name: "its name", Outcome: StepDone, DueAt: at(6), RecordedAt: at(8)}}}},
	{"BegunCalls", &BegunCalls{OperationID: sampleID}, begunCalls, db.BegunCalls, struct{ OperationID string }{}, db.BegunCallsRow{},
		&BegunCalls{OperationID: sampleID, Calls: []Step{{Seq: 22, Kind: CallStep, Name: "its name", Outcome: StepBegun}}}},
	{"LoadStepsOf", &LoadStepsOf{OperationIDs: []string{"u1", "u2"}}, loadStepsOf, db.LoadStepsOf, struct{ OperationIds string }{}, db.LoadStepsOfRow{},
		&LoadStepsOf{OperationIDs: []string{"u1", "u2"}, Steps: map[string][]Step{"66666666-7777-4888-8999-000000000000": {
			{Seq: 22, Kind: TxStep, Name: "its name", Outcome: StepDone, Value: []byte("its value"), DueAt: at(6)}}}}},
	{"TakeOperation", &TakeOperation{OperationID: sampleID, Owner: 11, Epoch: 15, Alone: true}, takeOperation, db.TakeOperation,
		db.TakeOperationParams{}, db.TakeOperationRow{},
		&TakeOperation{OperationID: sampleID, Owner: 11, Epoch: 15, Alone: true, Found: true, Taken: sampleTaken}},
	{"TakeOperations", &TakeOperations{Owner: 11, Names: sampleNames, Running: list{"u1", "u2"}, Alone: true, Room: 16}, takeOperations, db.TakeOperations,
		db.TakeOperationsParams{}, db.TakeOperationsRow{},
		&TakeOperations{Owner: 11, Names: sampleNames, Running: list{"u1", "u2"}, Alone: true, Room: 16, Taken: []Taken{sampleTaken}}},
	{"ReleaseOperations", ReleaseOperations{[]Taken{{OperationID: "u1", Epoch: 2}, {OperationID: "u2", Epoch: 3}}}, releaseOperations, db.ReleaseOperations,
		db.ReleaseOperationsParams{}, nil, ReleaseOperations{[]Taken{{OperationID: "u1", Epoch: 2}, {OperationID: "u2", Epoch: 3}}}},
	{"ShowOperation", &ShowOperation{OperationID: sampleID}, showOperation, db.ShowOperation, struct{ OperationID string }{}, db.ShowOperationRow{},
		&ShowOperation{OperationID: sampleID, Found: true, Scope: "its scope", Hash: [32]byte{4, 5, 6}, Name: "its name", State: OperationCompleted, Epoch: 21, Undoing: true, Cancelled: true, Kind: TxStep, Step: "its step", Attempts: 24,
			Reason: "its reason", Parent: sampleParent, Since: at(5), WakeAt: at(7), LoadedAt: at(4)}},
	{"ListOperations", &ListOperations{State: OperationRunning, After: sampleID, Scope: "the scope", Name: "the name", Step: "the step", Age: 12 * time.Second, Room: 16},
		listOperations, db.ListOperations, db.ListOperationsParams{}, db.ListOperationsRow{},
		&ListOperations{State: OperationRunning, After: sampleID, Scope: "the scope", Name: "the name", Step: "the step", Age: 12 * time.Second, Room: 16,
			Listed: []ListedOperation{{OperationID: "66666666-7777-4888-8999-000000000000", Scope: "its scope", Name: "its name", State: OperationCompleted, Undoing: true,
				Step: "its step", Attempts: 24, Reason: "its reason", CreatedAt: at(1), Since: at(5), EndedAt: at(14)}}}},
	{"FindOperation", &FindOperation{OperationID: sampleID}, findOperation, db.FindOperation, struct{ OperationID string }{}, db.FindOperationRow{},
		&FindOperation{OperationID: sampleID, Found: true, Scope: "its scope", Key: "its key", Hash: [32]byte{4, 5, 6}, Name: "its name", State: OperationCompleted,
			Step: "its step", Reason: "its reason", Since: at(5)}},
	{"ReleaseOperation", ReleaseOperation{OperationID: sampleID, Epoch: 15, Tries: 14, Pause: 13 * time.Second}, releaseOperation, db.ReleaseOperation,
		db.ReleaseOperationParams{}, nil, ReleaseOperation{OperationID: sampleID, Epoch: 15, Tries: 14, Pause: 13 * time.Second}},
	{"ParkOperation", &ParkOperation{OperationID: sampleID, Epoch: 15, Reason: "the reason", Step: "the step", Unbacked: true}, parkOperation, db.ParkOperation,
		db.ParkOperationParams{}, nil, &ParkOperation{OperationID: sampleID, Epoch: 15, Reason: "the reason", Step: "the step", Unbacked: true, Parked: true}},
	{"ReviveOperation", &ReviveOperation{OperationID: sampleID, Cancel: true, Fresh: true, Unknown: true, Epoch: 15}, reviveOperation, db.ReviveOperation,
		db.ReviveOperationParams{}, db.ReviveOperationRow{},
		&ReviveOperation{OperationID: sampleID, Cancel: true, Fresh: true, Unknown: true, Epoch: 15, Revived: true, Seq: 22, Kind: TxStep, Step: "its step", Key: "its key"}},
	{"DueOperations", &DueOperations{Names: sampleNames, But: []Due{{OperationID: "u1", Epoch: 2}, {OperationID: "u2", Epoch: 3}}, Room: 16},
		dueOperations, db.DueOperations, db.DueOperationsParams{}, db.DueOperationsRow{},
		&DueOperations{Names: sampleNames, But: []Due{{OperationID: "u1", Epoch: 2}, {OperationID: "u2", Epoch: 3}}, Room: 16,
			Due: []Due{{OperationID: "66666666-7777-4888-8999-000000000000", Name: "its name", Epoch: 21}}}},
	{"Disown", Disown{Owner: 11, Running: list{"u1", "u2"}}, disown, db.Disown, db.DisownParams{}, nil,
		Disown{Owner: 11, Running: list{"u1", "u2"}}},
	{"SendSignal", &SendSignal{OperationID: sampleID, Name: "the name", Value: []byte("the value")}, sendSignal, db.SendSignal, db.SendSignalParams{},
		struct{ Known bool }{}, &SendSignal{OperationID: sampleID, Name: "the name", Value: []byte("the value"), Known: true}},
	{"ReadSignal", &ReadSignal{OperationID: sampleID, Name: "the name"}, readSignal, db.ReadSignal, db.ReadSignalParams{}, db.ReadSignalRow{},
		&ReadSignal{OperationID: sampleID, Name: "the name", Found: true, Value: []byte("its value"), SentAt: at(13)}},
	{"DropSignals", DropSignals{OperationID: sampleID}, dropSignals, db.DropSignals, struct{ OperationID string }{}, nil, DropSignals{OperationID: sampleID}},
	{"TakeSignal", TakeSignal{OperationID: sampleID, Name: "the name"}, takeSignal, db.TakeSignal, db.TakeSignalParams{}, nil,
		TakeSignal{OperationID: sampleID, Name: "the name"}},
	{"NewInstance", &NewInstance{}, newInstance, db.NewInstance, struct{}{}, db.NewInstanceRow{}, &NewInstance{Instance: 25, Backend: 26}},
	{"AppearInSession", &AppearInSession{Instance: 17}, appear, db.AppearInSession, struct{ Instance int32 }{}, db.AppearInSessionRow{},
		&AppearInSession{Instance: 17, Held: true}},
	{"StandGuard", &StandGuard{Slot: 1}, standGuard, db.StandGuard, struct{ Slot int32 }{}, struct{ Slot int32 }{}, &StandGuard{Slot: 2}},
	{"ListOwners", &ListOwners{Instance: 17}, listOwners, db.ListOwners, struct{ Instance int32 }{}, db.ListOwnersRow{},
		&ListOwners{Instance: 17, Owners: []int{30, 31}, Abandoned: true}},
	{"SeeGone", &SeeGone{Instances: []int{18, 19}}, seeGone, db.SeeGone, struct{ Instances string }{}, struct{ Gone string }{},
		&SeeGone{Instances: []int{18, 19}, Gone: []int{32, 33}}},
	{"StandDown", StandDown{Slot: 1}, standDown, db.StandDown, struct{ Slot int32 }{}, nil, StandDown{Slot: 1}},
	{"RenewLease", RenewLease{Instance: 17, TTL: 90 * time.Second}, renewLease, db.RenewLease, db.RenewLeaseParams{}, nil,
		RenewLease{Instance: 17, TTL: 90 * time.Second}},
	{"EndLease", EndLease{Instance: 17}, endLease, db.EndLease, struct{ Instance int32 }{}, nil, EndLease{Instance: 17}},
	{"BeginMessages", &BeginMessages{OperationID: sampleID, Patience: 1500 * time.Millisecond}, beginMessages, db.BeginMessages, db.BeginMessagesParams{},
		db.BeginMessagesRow{}, &BeginMessages{OperationID: sampleID, Patience: 1500 * time.Millisecond, Previous: "the previous claim"}},
	{"ClaimMessages", &ClaimMessages{Messages: sampleMessages, Retention: 90 * time.Second}, claimMessages, db.ClaimMessages, db.ClaimMessagesParams{},
		db.ClaimMessagesRow{}, &ClaimMessages{Messages: sampleMessages, Retention: 90 * time.Second, Claimed: []MessageID{knownID}, At: at(5)}},
	{"LoadMessages", &LoadMessages{Messages: sampleMessages}, loadMessages, db.LoadMessages, db.LoadMessagesParams{}, db.LoadMessagesRow{},
		&LoadMessages{Messages: sampleMessages, Known: []KnownMessage{{MessageID: knownID, SameHash: true, State: "completed", Attempts: 24, Begun: 27, Alone: 28, Hindered: 30,
			Pause: 2009 * time.Microsecond, Since: at(5)}}}},
	{"ResumeMessages", &ResumeMessages{Messages: sampleMessages, Retention: 90 * time.Second}, resumeMessages, db.ResumeMessages, db.ResumeMessagesParams{},
		db.ResumeMessagesRow{}, &ResumeMessages{Messages: sampleMessages, Retention: 90 * time.Second, Resumed: []MessageID{knownID}, At: at(5)}},
	{"KeepMessages", &KeepMessages{OperationID: sampleID}, keepMessages, db.KeepMessages, struct{ OperationID string }{}, struct{ One int32 }{},
		&KeepMessages{OperationID: sampleID, Kept: true}},
	{"ReleaseMessages", ReleaseMessages{Messages: sampleMessages, At: at(7)}, releaseMessages, db.ReleaseMessages, db.ReleaseMessagesParams{}, nil,
		ReleaseMessages{Messages: sampleMessages, At: at(7)}},
	{"EnterMessages", EnterMessages{Messages: sampleMessages, Keys: []string{"the key"}, Retention: 90 * time.Second}, enterMessages,
		db.EnterMessages, db.EnterMessagesParams{}, nil, EnterMessages{Messages: sampleMessages, Keys: []string{"the key"}, Retention: 90 * time.Second}},
	{"AnnounceMessages", &AnnounceMessages{Messages: sampleMessages, Retention: 90 * time.Second, Alone: true}, announceMessages,
		db.AnnounceMessages, db.AnnounceMessagesParams{}, db.AnnounceMessagesRow{}, &AnnounceMessages{Messages: sampleMessages,
			Retention: 90 * time.Second, Alone: true, Announced: []MessageID{knownID}}},
	{"WithdrawMessages", WithdrawMessages{Messages: sampleMessages, Alone: true}, withdrawMessages, db.WithdrawMessages, db.WithdrawMessagesParams{}, nil,
		WithdrawMessages{Messages: sampleMessages, Alone: true}},
	{"FailingMessages", &FailingMessages{Consumer: "the consumer", Sources: []string{"s1", "s2"}, Keys: []string{"k1", "k2"}}, failingMessages,
		db.FailingMessages, db.FailingMessagesParams{}, db.FailingMessagesRow{}, &FailingMessages{Consumer: "the consumer", Sources: []string{"s1", "s2"},
			Keys: []string{"k1", "k2"}, Failing: []FailingMessage{{MessageID: knownID, Key: "its key", Pause: 2009 * time.Microsecond, Since: at(5)}}}},
	{"CountFailure", &CountFailure{FailedMessage: sampleFailed, Attempts: 18, Hindered: 33, Pause: 13 * time.Second}, countFailure, db.CountFailure,
		db.CountFailureParams{}, struct{ Attempts int32 }{}, &CountFailure{FailedMessage: sampleFailed, Attempts: 18, Hindered: 33, Pause: 13 * time.Second, Counted: true, Total: 24}},
	{"BuryMessage", &BuryMessage{FailedMessage: sampleFailed, Attempts: 18, Type: "the type", Contents: sampleBury.Contents, Class: "the class",
		Reason: "the reason"}, buryMessage, db.BuryMessage, db.BuryMessageParams{}, struct{ Attempts int32 }{},
		&BuryMessage{FailedMessage: sampleFailed, Attempts: 18, Type: "the type", Contents: sampleBury.Contents, Class: "the class",
			Reason: "the reason", Buried: true}},
	{"RedriveMessage", &RedriveMessage{Consumer: "the consumer", MessageID: sampleMessageID}, redriveMessage, db.RedriveMessage, db.RedriveMessageParams{},
		struct{ Known bool }{}, &RedriveMessage{Consumer: "the consumer", MessageID: sampleMessageID, Known: true}},
	{"RedrivenMessages", &RedrivenMessages{Consumer: "the consumer", Room: 16}, redrivenMessages, db.RedrivenMessages, db.RedrivenMessagesParams{},
		db.RedrivenMessagesRow{}, &RedrivenMessages{Consumer: "the consumer", Room: 16, Redriven: []RedrivenMessage{{MessageID: knownID, Key: "its key",
			Type: "its type", Contents: Contents{[]byte("its payload"), `{"G":"h"}`, "the key it is sealed with"}}}}},
	{"ForgetRedriven", ForgetRedriven{Messages: sampleMessages}, forgetRedriven, db.ForgetRedriven, db.ForgetRedrivenParams{}, nil,
		ForgetRedriven{Messages: sampleMessages}},
	{"InboxStats", &InboxStats{}, inboxStats, db.InboxStats, struct{}{}, db.InboxStatsRow{},
		&InboxStats{Consumers: []ConsumerStats{{Consumer: "its consumer", Failing: 2010, FailingSince: at(9), Dead: 2008, DiedAt: at(12)}}}},
	{"TakeSweep", &TakeSweep{Sweeper: sampleSweeper, TotalPages: 1002, Absence: "15s", Rest: "16s"}, takeSweep, db.TakeSweep,
		db.TakeSweepParams{}, db.TakeSweepRow{}, &TakeSweep{Sweeper: sampleSweeper, Absence: "15s", Rest: "16s", Taken: true,
			Position: Position{"the next part", 2001}, TotalPages: 2003, Pages: 2002}},
	{"AdvanceSweep", &AdvanceSweep{Sweeper: sampleSweeper, To: Position{"the part", 1000}, Walked: 1001, Deleted: 1003, Kept: 1004,
		Skipped: 1005}, advanceSweep, db.AdvanceSweep, db.AdvanceSweepParams{}, db.AdvanceSweepRow{},
		&AdvanceSweep{Sweeper: sampleSweeper, To: Position{"the part", 1000}, Walked: 1001, Deleted: 1003, Kept: 1004, Skipped: 1005,
			Advanced: true, Pages: 2002, TotalPages: 2003}},
	{"HoldSweep", &HoldSweep{Sweeper: sampleSweeper, WaitingFor: "the vacuum"}, holdSweep, db.HoldSweep, db.HoldSweepParams{},
		struct{ Pages int64 }{}, &HoldSweep{Sweeper: sampleSweeper, WaitingFor: "the vacuum", Held: true}},
	{"FinishSweep", &FinishSweep{Sweeper: sampleSweeper}, finishSweep, db.FinishSweep, db.FinishSweepParams{}, db.FinishSweepRow{},
		&FinishSweep{Sweeper: sampleSweeper, Finished: true, Pages: 2004, Deleted: 2005}},
	{"LeaveSweep", LeaveSweep{sampleSweeper}, leaveSweep, db.LeaveSweep, db.LeaveSweepParams{}, nil, LeaveSweep{sampleSweeper}},
	{"LimitPortion", LimitPortion{"1006", "1007", "1008"}, limitPortion, db.LimitPortion, db.LimitPortionParams{}, nil,
		LimitPortion{"1006", "1007", "1008"}},
	{"Part", &Part{Relation: "the relation", From: "the part"}, part, db.Part, db.PartParams{}, db.PartRow{},
		&Part{Relation: "the relation", From: "the part", Found: true, Name: "its name", Quoted: "the quoted name", OID: 2000,
			Pages: 2002, TotalPages: 2003}},
	{"ReadMessages", sampleRead(), readMessages, db.ReadMessages, db.ReadMessagesParams{}, db.ReadMessagesRow{}, func() *ReadMessages {
		r := sampleRead()
		r.Seqs, r.Messages = []int64{22}, []Queued{sampleQueued(0)}
		return r
	}()},
	{"ReadHeld", &ReadHeld{Keys: sampleKeys, Runs: []int{1, 16}, Octets: 1011}, readHeld, db.ReadHeld, db.ReadHeldParams{}, db.ReadHeldRow{},
		&ReadHeld{Keys: sampleKeys, Runs: []int{1, 16}, Octets: 1011, Messages: []Queued{sampleQueued(24)}}},
	{"ListHeld", &ListHeld{Stream: sampleStream}, listHeld, db.ListHeld, db.ListHeldParams{}, db.ListHeldRow{},
		&ListHeld{Stream: sampleStream, Held: []HeldBack{{HeldKey{"its topic", "its key", 2009}, 24, 30 * time.Second}}}},
	{"DeletePublished", DeletePublished{sampleSeqs}, deletePublished, db.DeletePublished, struct{ Seqs string }{}, nil, DeletePublished{sampleSeqs}},
	{"KeepPublished", KeepPublished{sampleSeqs, 90 * time.Second, true}, keepPublished, db.KeepPublished, db.KeepPublishedParams{}, nil,
		KeepPublished{sampleSeqs, 90 * time.Second, true}},
	{"HoldMessages", HoldMessages{sampleSeqs}, holdMessages, db.HoldMessages, struct{ Seqs string }{}, nil, HoldMessages{sampleSeqs}},
	{"BlameMessages", sampleBlame, blameMessages, db.BlameMessages, db.BlameMessagesParams{}, nil, sampleBlame},
	{"BuryUnpublished", sampleBury, buryUnpublished, db.BuryUnpublished, db.BuryUnpublishedParams{}, nil, sampleBury},
	{"OutboxStats", &OutboxStats{Most: 22}, outboxStats, db.OutboxStats, struct{ Most int32 }{}, db.OutboxStatsRow{},
		&OutboxStats{Most: 22, ReadAt: at(9), Oldest: at(10), OldestHeld: at(11), FirstDelayed: at(16), NextDue: at(17),
			Waiting: 2012, Due: 2017, Delayed: 2018, Held: 2013, HeldKeys: 2014, Dead: 2008}},
	{"NextDelayed", &NextDelayed{}, nextDelayed, db.NextDelayed, struct{}{}, db.NextDelayedRow{}, &NextDelayed{Due: 30 * time.Second, Took: 31 * time.Second}},
	{"MoveDelayed", &MoveDelayed{From: sampleMoment, Room: 16, Octets: 1011}, moveDelayed, db.MoveDelayed, db.MoveDelayedParams{}, db.MoveDelayedRow{},
		&MoveDelayed{From: sampleMoment, Room: 16, Octets: 1011, Mine: true, Moved: 2016, Until: at(15)}},
	{"LimitRelay", &LimitRelay{}, limitRelay, db.LimitRelay, struct{}{}, nil, &LimitRelay{}},
	{"ListWriters", &ListWriters{}, listWriters, db.ListWriters, struct{}{}, db.ListWritersRow{},
		&ListWriters{Writers: []Writer{{"its name", true}}}},
	{"AppearAsRelay", &AppearAsRelay{Instance: 17}, appearAsRelay, db.AppearAsRelay, struct{ Instance int32 }{}, db.AppearAsRelayRow{},
		&AppearAsRelay{Instance: 17, Held: true}},
	{"SeeLanes", &SeeLanes{Relay: "the relay", Lanes: []int{0, 2}}, seeLanes, db.SeeLanes, db.SeeLanesParams{}, struct{ Free bool }{},
		&SeeLanes{Relay: "the relay", Lanes: []int{0, 2}, Free: true}},
	{"TakeLanes", &TakeLanes{Relay: "the relay", Instance: 17, Generation: 1018, Lanes: []int{0, 2}}, takeLanes, db.TakeLanes, db.TakeLanesParams{}, struct{ Lane int32 }{},
		&TakeLanes{Relay: "the relay", Instance: 17, Generation: 1018, Lanes: []int{0, 2}, Taken: []int{27}}},
	{"KeepLanes", KeepLanes{Instance: 17, Lanes: 16}, keepLanes, db.KeepLanes, db.KeepLanesParams{}, nil, KeepLanes{Instance: 17, Lanes: 16}},
	{"SeeTopics", &SeeTopics{}, seeTopics, db.SeeTopics, struct{}{}, struct{ Generation int64 }{}, &SeeTopics{Generation: 2015}},
	{"ListTopics", &ListTopics{}, listTopics, db.ListTopics, struct{}{}, db.ListTopicsRow{},
		&ListTopics{Relays: []RelayTopics{{Relay: "its relay", Topics: []string{"one", "two*"}, Generation: 2015, Fresh: true}}}},
	{"LockTopics", LockTopics{}, lockTopics, db.LockTopics, struct{}{}, nil, LockTopics{}},
	{"RecordTopics", &RecordTopics{Relay: "the relay", Topics: []string{"the topic", `an\other`}, Seen: 1019}, recordTopics, db.RecordTopics, db.RecordTopicsParams{},
		struct{ Generation int64 }{}, &RecordTopics{Relay: "the relay", Topics: []string{"the topic", `an\other`}, Seen: 1019, Recorded: true, Generation: 2015}},
	{"ForgetTopics", &ForgetTopics{Relay: "the relay"}, forgetTopics, db.ForgetTopics, struct{ Relay string }{}, struct{ Generation int64 }{},
		&ForgetTopics{Relay: "the relay", Known: true}},
	{"SeeOutdated", &SeeOutdated{Relay: "the relay", Generation: 1018}, seeOutdated, db.SeeOutdated, db.SeeOutdatedParams{}, struct{ None bool }{},
		&SeeOutdated{Relay: "the relay", Generation: 1018, None: true}},
	{"LeaveLanes", LeaveLanes{17}, leaveLanes, db.LeaveLanes, struct{ Instance int32 }{}, nil, LeaveLanes{17}},
	{"ListDeadLetters", sampleList(nil), listDeadLetters, db.ListDeadLetters, db.ListDeadLettersParams{}, db.ListDeadLettersRow{},
		sampleList([]Letter{sampleLetter(LetterName{"its side", "its consumer", "its source", "its id"}, false)})},
	{"ShowDeadLetter", &ReadLetter{Name: sampleName}, showDeadLetter, db.ShowDeadLetter, db.ShowDeadLetterParams{}, db.ShowDeadLetterRow{},
		&ReadLetter{Name: sampleName, Found: true, Letter: sampleLetter(sampleName, true)}},
	{"NoteAct", &sampleAct, noteAct, db.NoteAct, db.NoteActParams{}, nil, &sampleAct},
	{"TakeDeadLetter", &ReadLetter{Name: sampleName, Take: true}, takeDeadLetter, db.TakeDeadLetter, db.TakeDeadLetterParams{}, db.TakeDeadLetterRow{},
		&ReadLetter{Name: sampleName, Take: true, Found: true, Letter: sampleLetter(sampleName, true)}},
	{"Backlog", &Backlog{OID: 1009}, backlog, db.Backlog, struct{ Oid int64 }{}, db.BacklogRow{},
		&Backlog{OID: 1009, Lag: 2006, Standby: "the standby", Hidden: 2007, Dead: 2008}},
}

// answersOf are the answers of one verb whose columns other verbs have of another type.
var answersOf = map[string]map[string]any{
	"OutboxStats": {"Held": int64(2013), "Due": int64(2017)}, "ReadMessages": {"Seq": int64(22)}, "ListWriters": {"Prepared": true}, "ReadHeld": {"Seq": int64(22)},
}

var (
	sampleStream = Stream{Number: 2, Of: 3, Topics: []string{"the topic", `an\other`}, Foreign: []string{"foreign"}}
	sampleSeqs   = []int64{1012, 1013}
	sampleMoment = time.Date(2026, 1, 2, 3, 4, 5, 6500, time.UTC)
	sampleKeys   = []HeldKey{{"the topic", "the key", 1012}, {`an\other`, "", 1013}}
	sampleBlame  = BlameMessages{sampleSeqs, []time.Duration{19 * time.Second, 20 * time.Second}, []int{1, 0}, []string{"the class", "another"}, []string{"the reason", "another"}}
	sampleBury   = BuryUnpublished{Seq: 1012, Contents: Contents{[]byte("the payload"), `{"E":"f"}`, "the sealing key"}, Class: "the class", Reason: "the reason", Attempts: 18}
	sampleName   = LetterName{"the side", "the consumer", `so\ur"ce`, "the id"}
)

func sampleRead() *ReadMessages {
	return &ReadMessages{Stream: sampleStream, Lows: []int64{1014, 1016}, Highs: []int64{1015, 1017}, After: 1010, Room: 23, Octets: 1011}
}

// sampleQueued is what the sample answers tell of a message.
func sampleQueued(attempts int) Queued {
	return Queued{Seq: 22, ID: "its id", Topic: "its topic", Key: "its key", Type: "its type", Payload: []byte("its payload"),
		Headers: map[string]string{"G": "h"}, CreatedAt: at(1), Attempts: attempts}
}

// sampleLetter is what they tell of a dead letter.
func sampleLetter(name LetterName, whole bool) Letter {
	l := Letter{LetterName: name, Key: "its key", Type: "its type", Contents: Contents{SealedBy: "the key it is sealed with"}, Class: "its class",
		Reason: "its reason", Attempts: 24, CreatedAt: at(1), DiedAt: at(12)}
	if whole {
		l.Contents.Payload, l.Contents.Headers = []byte("its payload"), `{"G":"h"}`
	}
	return l
}

func sampleList(letters []Letter) *ListLetters {
	return &ListLetters{Only: LetterName{"only the side", "only the consumer", "only the source", ""},
		After: LetterName{"after the side", "after the consumer", "after the source", "after the id"}, Room: 24, Letters: letters}
}

var (
	sampleMessageID = MessageID{`so\ur"ce`, "the id"}
	sampleMessages  = NewMessages("the consumer", 1, func(int) (MessageID, [32]byte) { return sampleMessageID, [32]byte{1, 2, 3} })
	sampleFailed    = FailedMessage{Consumer: "the consumer", MessageID: sampleMessageID, Hash: [32]byte{1, 2, 3}, Key: "the key", Retention: 90 * time.Second}
	knownID         = MessageID{"its source", "its id"}
)

var (
	sampleStep  = Step{Seq: 12, Kind: CallStep, Name: "the name", Outcome: StepWaiting, Value: []byte("the value")}
	sampleNames = []string{"the name", `na\me, "2"`}
)

func TestParametersAndResultsAreInTheOrderOfTheQueries(t *testing.T) {
	t.Parallel()
	for _, verb := range verbs {
		t.Run(verb.name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t)
			w.answerWith(t, verb.name, verb.row)
			if err := ask(t.Context(), w.conn, verb.request); err != nil {
				t.Fatal(err)
			}
			if w.sql != verb.sql || verb.statement.SQL != verb.sql {
				t.Errorf("the statement is not that of the verb:\n%s", w.sql)
			}
			if diff := cmp.Diff(paramsOf(t, verb.name, verb.params), texts(w.params)); diff != "" {
				t.Errorf("parameters (-sqlc +store):\n%s", diff)
			}
			if diff := cmp.Diff(verb.want, any(verb.request), cmp.AllowUnexported(Key{}, Messages{})); diff != "" {
				t.Errorf("what was read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryQueryHasAVerb(t *testing.T) {
	t.Parallel()
	queries, named := reflect.TypeFor[*db.Queries](), map[string]bool{"WithTx": true, "AddMessages": true, "AddDelayed": true}
	for _, verb := range verbs {
		named[verb.name] = true
	}
	for i := range queries.NumMethod() {
		if name := queries.Method(i).Name; !named[name] {
			t.Errorf("%s is missing in verbs", name)
		}
	}
}

// A form says how a literal of a parameter is written, and what the server is told about its format.
func TestFormsOfParametersFitTheirTypes(t *testing.T) {
	t.Parallel()
	hasAnyText := map[string]bool{"Scope": true, "Key": true, "Name": true, "Names": true, "Step": true, "Reason": true,
		"SealedBy": true, "Part": true, "Type": true, "Relay": true, "Person": true, "MessageID": true, "ForeignTopics": true,
		"Sources": true, "Ids": true, "Topics": true, "Keys": true, "Classes": true, "Reasons": true, "Headers": true, "Class": true, "Side": true, "Consumer": true, "Source": true, "ID": true,
		"OnlySide": true, "OnlyConsumer": true, "OnlySource": true, "AfterSide": true, "AfterConsumer": true, "AfterSource": true, "AfterID": true}
	for _, verb := range verbs {
		hasAnyText["Name"] = !strings.HasSuffix(verb.name, "Sweep") // which the library names
		params := reflect.TypeOf(verb.params)
		if params.NumField() != len(verb.statement.Params) {
			t.Errorf("%s: %d forms for %d parameters", verb.name, len(verb.statement.Params), params.NumField())
			continue
		}
		for i, form := range verb.statement.Params {
			field := params.Field(i)
			want := plain
			switch {
			case field.Type == reflect.TypeFor[[]byte]():
				want = bytes
			case hasAnyText[field.Name]:
				want = text
			}
			if form != want {
				t.Errorf("%s: %s has form %v, want %v", verb.name, field.Name, form, want)
			}
		}
	}
}

// answerWith makes the server answer with a row of sqlc's, filled from answers.
func (w *wire) answerWith(t *testing.T, verb string, row any) {
	t.Helper()
	if row == nil {
		return
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(row)) {
		var value []byte
		given, differs := answersOf[verb][field.Name]
		if !differs {
			given = answers[field.Name]
		}
		switch answer := given.(type) {
		case bool:
			value = []byte("t")
		case string:
			value = []byte(answer)
		case int32:
			value = strconv.AppendInt(nil, int64(answer), 10)
		case int64:
			value = strconv.AppendInt(nil, answer, 10)
		case []byte:
			value = answer
		default:
			t.Fatalf("no answer for the column %s", field.Name)
		}
		if got := reflect.TypeOf(given); got != field.Type {
			t.Fatalf("the column %s is of type %v, not %v", field.Name, field.Type, got)
		}
		w.row = append(w.row, value)
		w.bytea = append(w.bytea, field.Type == reflect.TypeFor[[]byte]())
	}
}

// paramsOf returns the parameters that the sample requests carry, in the order of sqlc's struct.
func paramsOf(t *testing.T, verb string, params any) []string {
	t.Helper()
	want := []string{}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(params)) {
		value, ok := asSent[field.Name]
		if other, differs := differently[verb][field.Name]; differs {
			value = other
		}
		if !ok {
			t.Fatalf("no value for the parameter %s", field.Name)
		}
		want = append(want, value)
	}
	return want
}

func texts(values [][]byte) []string {
	read := []string{}
	for _, v := range values {
		read = append(read, string(v))
	}
	return read
}
