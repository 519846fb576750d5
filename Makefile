# Nothing has to be set up first: the targets that need a Postgres start one (lab/testenv says how, and how to
# choose another). Every target works on all modules of the repository unless it says otherwise.

# Flags for go test, as in: make test GOTEST='-run TestDo'
export GOTEST ?=
# Flags for testenv, as in: make bench/library TESTENV='-c fsync=on'
TESTENV ?=
# Flags for tally, as in: make test TALLY='-together 1'. Two modules run at a time, and six tests of a package: tests wait more
# than they compute.
TALLY ?=
# The modules to test, and the packages in each of them, as in: make test MODULES=. PACKAGES='./outbox ./inbox'
PACKAGES ?= ./...
# Further flags for torture and bench, as in: make torture TORTURE='-workers 8', make bench BENCH='-only storm' (writes nothing)
TORTURE ?=
BENCH ?=
# Flags for fleet, as in: make fleet FLEET='-moves 6 -keys 1000'
FLEET ?=

# What users import or run, and the tests of it that have a module of their own. The modules that take longest come first.
PRODUCT := . cmd/idem example/orders adapter/idemriver lab/brokers $(filter-out adapter/idemriver,$(wildcard adapter/idem*)) \
	cmd/idem-conform idemconnect idemgrpc idemotel idemvet $(filter-out example/orders example/fleet,$(patsubst %/go.mod,%,$(wildcard example/*/go.mod)))
EVERYTHING := $(patsubst ./%,%,$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.*/*')))
LONGEST = . lab/torture example/fleet lab/bench
MODULES ?= $(LONGEST) $(filter-out $(LONGEST),$(PRODUCT)) $(filter-out $(LONGEST) $(PRODUCT),$(EVERYTHING))
# Without lab/, except for the tests of the promises of package idem. The packages that take longest come first.
ROOT = .=./operation,./outbox,./lab/promises,$$(go list ./... | grep -v /lab/ | paste -sd, -)
# The race detector makes tests several times as slow. It is for what users import or run: not for tools, nor for what measures and breaks it.
UNRACED := ./ idemvet tools example/fleet $(filter-out lab/brokers,$(filter lab/%,$(EVERYTHING)))
# The root module is tested in two runs: ROOT_RACED with the race detector, and ROOT_UNRACED, the test kit and lab/ without promises, without
# it. The packages that take longest come first.
PACKAGES_OF_ROOT = $(patsubst $(CURDIR)%,.%,$(shell go list -f '{{.Dir}}' ./...))
WITHOUT_RACE = $(filter-out ./lab/promises,$(filter ./idemtest% ./lab/% ./migrations,$(PACKAGES_OF_ROOT)))
FIRST := ./operation ./outbox ./lab/promises
comma := ,
space := $() $()
ROOT_RACED = .=$(subst $(space),$(comma),$(strip $(FIRST) $(filter-out $(FIRST) $(WITHOUT_RACE),$(PACKAGES_OF_ROOT))))
ROOT_UNRACED = ./=$(subst $(space),$(comma),$(strip $(WITHOUT_RACE)))
# each runs a command in every module, in all of them even if it fails in one.
each = failed=; for module in $(MODULES); do (cd $(CURDIR)/$$module && $(1)) || failed=1; done; [ -z "$$failed" ]

.PHONY: chaos help demo serve fleet test test/all idemtest portability torture torture/mutants torture/sample bench bench/quick bench/report bench/library bench/operations bench/inbox bench/messages bench/outbox bench/profile generate verify \
	lint tidy fresh apidiff release build clean need need/postgres need/database testenv staticcheck tally sqlc-gen-idem

help: ## list the targets
	@sed -n 's/^\([a-z/]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: testenv ## run the demo: an order service under faults, on one screen
	@bin/testenv $(TESTENV) go -C example/orders run . demo

serve: testenv ## run the example's server until Ctrl-C
	@bin/testenv $(TESTENV) go -C example/orders run . serve

fleet: testenv ## move a tenant between two databases while clients use it, and check the books (FLEET='-moves 6')
	@bin/testenv $(TESTENV) go -C example/fleet run ./show $(FLEET)

# With IDEM_TEST_SAMPLE=n, tests that kill a process at each of its statements take one statement of ten, and under test/all one of five.
# A program with the race detector sleeps for a second when it exits, unless GORACE says how long.
test: testenv tally ## test what users import or run
	@IDEM_TEST_SAMPLE=$${IDEM_TEST_SAMPLE-0} bin/testenv $(TESTENV) sh -c 'exec bin/tally -together 2 $(TALLY) \
		$(if $(filter command line,$(origin MODULES)),$(MODULES),"$(ROOT)" $(filter-out .,$(PRODUCT))) -- go test -json -vet=off -short -parallel 6 -timeout 20m $$GOTEST $(PACKAGES)'

test/all: testenv tally ## test everything, lab/ included; what users import or run with the race detector
	@GORACE=$${GORACE-atexit_sleep_ms=50} IDEM_TEST_SAMPLE=$${IDEM_TEST_SAMPLE-0} bin/testenv $(TESTENV) sh -c 'exec bin/tally -together 2 -unraced "$(UNRACED)" \
		$(TALLY) $(if $(filter command line,$(origin MODULES)),$(MODULES),"$(ROOT_RACED)" "$(ROOT_UNRACED)" $(filter-out .,$(MODULES))) -- go test -json -vet=off -race -parallel 6 -timeout 60m $$GOTEST $(PACKAGES)'

idemtest: testenv ## does package idemtest find every program that is known to be bad? (make test/all tries one of ten)
	@IDEM_TEST_ALL=1 bin/testenv $(TESTENV) go test -timeout 60m $$GOTEST ./idemtest

portability: testenv ## the promises behind what other servers and poolers refuse and do: the tests of Do, and 100,000 calls of each (CALLS=1000000)
	@IDEM_TEST_ALL=1 bin/testenv $(TESTENV) go test -timeout 120m -v -run 'Promises|NoKey' $$GOTEST ./lab/personality -calls $(if $(CALLS),$(CALLS),100000)

torture: need/postgres ## two minutes of faults, then every promise is checked (DURATION=10m SEED=1)
	@go -C lab/torture build -o ../../bin/torture .
	@bin/torture run $(if $(DURATION),-duration $(DURATION)) $(if $(SEED),-seed $(SEED)) $(TORTURE)

torture/mutants: need/postgres ## check that the torture detects libraries that are broken on purpose
	@go -C lab/torture build -o ../../bin/torture .
	@bin/torture mutants -source lab/torture

torture/sample: need/postgres ## the same for one broken library per promise (HALF=0 or HALF=1: half of them, as .ci/run does)
	@go -C lab/torture build -o ../../bin/torture .
	@bin/torture mutants -source lab/torture -sample $(if $(HALF),-half $(HALF))

bench: need/postgres ## measure idem.Do beside its alternatives, and write docs/benchmarks.md (ten minutes)
	@cd lab/bench && go run . $(or $(BENCH),-write) calls

bench/quick: need/postgres ## the same in some minutes, and write nothing (SUITE=operations; BENCH='-only replay -who textbook')
	@cd lab/bench && go run . -quick $(BENCH) $(or $(SUITE),calls)

bench/report: ## write docs/benchmarks.md from the results of the last runs
	@cd lab/bench && go run . -render

bench/library: testenv ## the cost of sealing a response, with its allocations
	@bin/testenv $(TESTENV) sh -c 'go test -run "^\$$" -bench . -benchmem $$GOTEST ./lab/promises'

bench/profile: need/postgres ## measure the processor time of a call, and write the reports (two minutes)
	@cd lab/bench && go run . $(or $(BENCH),-write) profile

bench/operations: need/postgres ## measure package operation beside its alternatives, and write the reports (five minutes)
	@cd lab/bench && go run . $(or $(BENCH),-write) operations

chaos: testenv ## kill relays, consumers and brokers under a hundred thousand messages, and count lost, duplicated and reordered ones (MESSAGES=100000; ten to forty minutes)
	@for a in $(or $(ADAPTERS),idemnats idemkafka idemamqp idemwatermill idemriver); do \
		dir=adapter/$$a; [ ! -d lab/brokers/$$a ] || dir=lab/brokers/$$a; \
		bin/testenv go -C $$dir test -count=1 -timeout 1h -run Chaos -v . -args -messages $(or $(MESSAGES),100000) || exit 1; done

bench/messages: need/postgres ## measure outbox and inbox beside their alternatives, with what is lost and doubled, and write the reports (six minutes)
	@cd lab/bench && go run . $(or $(BENCH),-write) messages

bench/inbox: testenv ## messages a second that take effect once: one by one, by the thousand, together
	@bin/testenv -c fsync=on -c synchronous_commit=on -c synchronous_standby_names= $(TESTENV) sh -c 'go test -run "^\$$" -bench . -benchmem $$GOTEST ./inbox'

bench/outbox: testenv ## messages a second that leave the outbox, alone, beside an old snapshot, with delayed messages (two minutes)
	@bin/testenv -c fsync=on -c synchronous_commit=on -c synchronous_standby_names= $(TESTENV) sh -c 'go test -run "^\$$" -bench Relay -benchtime 10x $$GOTEST ./outbox'

generate: sqlc-gen-idem ## write the *.sql.go of internal/db and internal/statsdb, and docs/evidence.md
	$(SQLC) generate
	@go -C lab/torture test -count=1 ./mutant -run Evidence -update >/dev/null

verify: lint tidy fresh ## check all that is checked before a change lands, short of the tests

fresh: sqlc-gen-idem ## check that the *.sql.go of internal/db and internal/statsdb are up to date
	@$(SQLC) diff

# Each package has a comment, except what is generated.
CHECKS := -checks all,-ST1000

lint: staticcheck ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .) && [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }
	@$(call each,go vet ./... && $(CURDIR)/bin/staticcheck $(CHECKS) ./...)

tidy: ## check that go.mod and go.sum are tidy
	@$(call each,$(CURDIR)/tools/tidy.sh)

apidiff: ## what importers have to change since the last release (BASE=v0.1.0: since that one)
	@tools/apidiff.sh $(BASE)


release: ## prepare a release of every module: one commit, a tag for each (VERSION=v0.2.0)
	@tools/release.sh $(VERSION)

build: ## compile everything
	@$(call each,go build -o /dev/null ./...)

clean: ## remove what the other targets leave
	rm -rf bin

need:
	@go build -o bin/need ./lab/optional/need

need/postgres: need
	@bin/need postgres

need/database: need
	@bin/need -database

testenv: need/database
	@go -C lab/testenv build -o ../../bin/testenv .

tally:
	@go -C tools build -o ../bin/tally ./tally

sqlc-gen-idem:
	@CGO_ENABLED=0 go -C tools build -o ../bin/sqlc-gen-idem ./sqlc-gen-idem

staticcheck:
	@CGO_ENABLED=0 go build -modfile=tools/go.mod -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck

# Without cgo, sqlc builds in two minutes instead of ten; the next time it starts at once.
SQLC = CGO_ENABLED=0 go tool -modfile=tools/go.mod sqlc
