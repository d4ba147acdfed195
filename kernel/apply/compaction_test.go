// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/kernel/cgroup"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/unit"
)

// twice is a ledger that is compacted now and then, beside all that was ever appended to any.
type twice struct {
	*ledger.Ledger
	all *[]journal.Record
}

// Append implements journal.Journal.
func (l twice) Append(records ...journal.Record) error {
	*l.all = append(*l.all, records...)
	return l.Ledger.Append(records...)
}

// story is what becomes of one knob: the lives of ours, one after the other of each process, systemd, the runtime and whoever else writes to it.
type story struct {
	*kerneltest.Tree
	t    testing.TB
	knob plan.Knob
	// writers are the names of our processes, each with a ledger, and lives what each is now. A step is of the one whose turn it is.
	writers []string
	lives   []*Applier
	ledgers []twice
	turn    int
	first   int64 // what stands before us
	dir     string
	all     []journal.Record
	file    string
	pids    map[int]int // oom_score_adj of processes
	clock   int64
	// lets is how many writes the kernel takes before it refuses one; lost: it gets none, as we were killed.
	lets int
	lost bool
}

const storyCgroup = "/kubepods/burstable/podX/c1"

// Write implements Writer.
func (s *story) Write(path, value string, nonblock bool) error {
	switch {
	case s.lost:
		return nil
	case s.lets == 0:
		return unix.EBUSY
	}
	s.lets--
	return s.Tree.Write(path, value, nonblock)
}

func (s *story) SchedPolicy(int) (int, error)  { return 0, unix.ESRCH }
func (s *story) SetSchedPolicy(int, int) error { return unix.ESRCH }
func (s *story) OOMScoreAdj(pid int) (int, error) {
	return s.pids[pid], nil
}

func (s *story) SetOOMScoreAdj(pid, score int) error {
	switch {
	case s.lost:
		return nil
	case s.lets == 0:
		return unix.EPERM
	}
	s.lets--
	s.pids[pid] = score
	return nil
}

// often is more writes than a story has.
const often = 1 << 20

// live begins a life of the process whose turn it is.
func (s *story) live() {
	fs, err := cgroup.Open(s.Roots, s.Version, cgroup.Options{Weight: unit.Quadratic, PodWeight: unit.Linear})
	if err == nil {
		s.lives[s.turn], err = New(Options{FS: fs, Roots: s.Roots, Journal: s.ledgers[s.turn], Writer: s, Tasks: s, Now: s.now})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.life().Recall(s.kept())
}

func (s *story) life() *Applier { return s.lives[s.turn] }

// kept is what the ledgers have.
func (s *story) kept() []journal.Record {
	records, _, err := ledger.ReadAll(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return records
}

func (s *story) now() time.Time {
	s.clock++
	return time.Unix(s.clock, 0).UTC()
}

func (s *story) target() plan.Target {
	return plan.Target{Level: plan.LevelContainer, Cgroup: storyCgroup, Name: "default/x/c1"}
}

// value is one of few, so that they come again; of what was there first it is the unlimited one or none.
func (s *story) value(arg byte) int64 {
	if s.knob == plan.CPUShares {
		return 100 + int64(arg%7)*300 // of most the weight stands for others as well
	}
	return int64(1+arg%7) * 4096
}

// text is what the knob's file says of a value.
func (s *story) text(value int64) string {
	if s.knob == plan.CPUShares {
		return strconv.FormatInt(int64(unit.Quadratic.Weight(unit.Shares(value))), 10)
	}
	return strconv.FormatInt(value, 10)
}

func (s *story) write(value int64) {
	s.life().Apply(s.t.Context(), plan.Plan{{Target: s.target(), Knob: s.knob, Value: plan.Int(value), Reason: "test"}}, 1)
}

// them has somebody else write.
func (s *story) them(value int64) {
	if s.knob == plan.OOMScoreAdj {
		s.pids[10+int(value/4096)%3] = int(value)
		return
	}
	s.Set(s.t, storyCgroup, s.file, s.text(value))
}

// record appends a record that others than an Applier make.
func (s *story) record(via journal.Via, change func(*journal.Record)) {
	set := plan.Setting{Target: s.target(), Knob: s.knob}
	rec := s.life().bare().record(&target{}, set, via, 1)
	rec.Want = ""
	change(&rec)
	if err := s.ledgers[s.turn].Append(rec); err != nil {
		s.t.Fatal(err)
	}
}

// step does one of the things that happen.
func (s *story) step(op, arg byte) {
	s.lets, s.lost = often, false
	s.turn = int(arg>>6) % len(s.writers)
	value := s.value(arg)
	switch op % 16 {
	default:
		s.write(value)
	case 5, 6, 7: // refused, or in part
		s.lets = int(op%16) - 5
		s.write(value)
	case 8:
		s.them(value)
	case 9: // the first again
		s.them(s.first)
	case 10:
		s.lets = int(arg % 3)
		fallthrough
	case 11:
		if arg%4 == 0 {
			s.life().Restore(s.t.Context(), s.kept(), false)
		}
	case 12:
		if s.knob == plan.MemoryLimit {
			return // a runtime moves both files, and a restore from its specification may leave the second as it is
		}
		if arg%5 == 0 {
			s.record(journal.ViaTold, func(*journal.Record) {})
			return
		}
		s.record(journal.ViaRuntime, func(r *journal.Record) {
			r.Inode, r.Want, r.Base = 0, strconv.FormatInt(value, 10), strconv.FormatInt(s.value(1), 10)
		})
		s.them(value)
	case 13:
		if s.knob != plan.MemoryLow { // of the knobs with one file
			return
		}
		s.record(journal.ViaBeside, func(r *journal.Record) {
			r.Files, r.Original, r.Written = []string{s.Path(storyCgroup, s.file)}, []string{strconv.FormatInt(value, 10)}, []string{"0"}
		})
	case 14: // killed, perhaps between a record and its write
		if s.lost = arg%2 == 0; s.lost {
			s.write(value)
		}
		s.live()
	case 15:
		s.compact()
	}
}

func (s *story) compact() {
	if err := s.ledgers[s.turn].Compact(); err != nil {
		s.t.Fatal(err)
	}
}

// told is what histories make of records, in words: each record by its time.
func (s *story) told(records []journal.Record) string {
	at := func(r *journal.Record) string {
		if r == nil {
			return "-"
		}
		return fmt.Sprint(r.Time.Unix())
	}
	histories, originals := s.life().histories(records)
	var b strings.Builder
	for i := range histories {
		h := &histories[i]
		fmt.Fprintf(&b, "first %s, ours %s, theirs %s, runtime %s before %s, beside %s %t",
			at(h.first), at(h.ours), at(h.theirs), at(h.runtime), at(h.before), at(h.beside), h.besideLast)
		for _, r := range h.mayStand() {
			fmt.Fprintf(&b, ", may stand %s", at(r))
		}
		if h.first != nil || h.beside != nil {
			original, ok := h.original(originals, h.file(s.life()))
			fmt.Fprintf(&b, ", original %q %t", original, ok)
		}
		if h.first != nil && !h.id.Knob.OfProcesses() {
			for _, f := range h.first.Files {
				fmt.Fprintf(&b, ", %s %q", f, originals[f])
			}
		}
		if h.first != nil {
			if e := ledger.NewIndex(records, s.life().Found).Entries(); len(e) != 1 || e[0].Original == nil || h.theirs != nil && e[0].Original.Time != h.theirs.Time ||
				h.theirs == nil && e[0].Original.Time != h.first.Time {
				fmt.Fprintf(&b, "; the index says otherwise: %+v", e)
			}
		}
	}
	return b.String()
}

// tell plays a story, whose steps are pairs of bytes, and compares.
func (s *story) tell(steps []byte) bool {
	s.t.Helper()
	var err error
	if s.dir, err = os.MkdirTemp(s.t.TempDir(), ""); err != nil {
		s.t.Fatal(err)
	}
	s.all, s.ledgers, s.lives = nil, nil, make([]*Applier, len(s.writers))
	for _, name := range s.writers {
		l, err := ledger.Open(s.dir, name, ledger.Options{})
		if err != nil {
			s.t.Fatal(err)
		}
		defer l.Close()
		l.Compare(func(r *journal.Record, want string) bool { return s.life().Found(r, want) })
		s.ledgers = append(s.ledgers, twice{l, &s.all})
	}
	s.pids = map[int]int{10: 0, 11: 0, 12: 0}
	if s.first = 0; s.knob == plan.CPUShares {
		s.first = 1024
	}
	if s.knob != plan.OOMScoreAdj {
		s.Set(s.t, storyCgroup, s.file, s.text(s.first))
	}
	if s.knob == plan.MemoryLimit {
		s.Set(s.t, storyCgroup, "memory.memsw.limit_in_bytes", "0") // it has to move along
	}
	for s.turn = range s.writers {
		s.live()
	}
	for i := 0; i+1 < len(steps); i += 2 {
		s.step(steps[i], steps[i+1])
	}
	want := s.told(s.all)
	for i := range 2 * len(s.writers) {
		s.turn = i % len(s.writers)
		s.compact()
		kept := s.kept()
		if got := s.told(kept); got != want || len(kept) > 24*len(s.writers) {
			s.t.Errorf("%s %v: of all %d records\n%s\nof the kept %d\n%s\nall:\n%s\nkept:\n%s", s.knob, steps, len(s.all), want, len(kept), got,
				lines(s.all), lines(kept))
			return false
		}
	}
	return true
}

func lines(records []journal.Record) string {
	var b strings.Builder
	for i := range records {
		r := &records[i]
		fmt.Fprintf(&b, "  %d %s want %s, %v→%v, theirs %t found %s, err %q\n", r.Time.Unix(), r.Via, r.Want, r.Original, r.Written, r.Theirs, r.Found, r.Err)
	}
	return b.String()
}

// stories are one for each kind of knob, with one file, with one that tells less than was wanted, with one that moves along, and with one for each process; each of one process of ours,
// and of two.
func stories(t testing.TB) []*story {
	t.Helper()
	var out []*story
	for _, k := range []struct {
		kernel string
		knob   plan.Knob
		file   string
	}{{"6.12", plan.MemoryLow, "memory.low"}, {"6.12", plan.CPUShares, "cpu.weight"}, {"v1", plan.MemoryLimit, "memory.limit_in_bytes"}, {"6.12", plan.OOMScoreAdj, "cgroup.procs"}} {
		for _, writers := range [][]string{{"nri"}, {"nri", "koordlet"}} {
			s := &story{Tree: kerneltest.New(t, k.kernel, storyCgroup), t: t, knob: k.knob, file: k.file, writers: writers}
			s.SetProcs(t, storyCgroup, 10, 11, 12)
			out = append(out, s)
		}
	}
	return out
}

// TestCompactionChangesNoRestore: what a restore would do from all records it does from those that compaction keeps.
func TestCompactionChangesNoRestore(t *testing.T) {
	t.Parallel()
	n := 400
	if testing.Short() {
		n = 100
	}
	for _, s := range stories(t) {
		t.Run(s.knob.String()+" of "+strings.Join(s.writers, " and "), func(t *testing.T) {
			t.Parallel()
			s.t = t
			for seed := range uint64(n) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				steps := make([]byte, 2*(2+rnd.IntN(20)))
				for i := range steps {
					steps[i] = byte(rnd.Uint32())
				}
				if !s.tell(steps) {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// FuzzCompaction is TestCompactionChangesNoRestore of any story.
func FuzzCompaction(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 5, 2, 15, 0})
	f.Add([]byte{0, 0, 0, 1, 0, 2, 8, 1, 0, 2})
	all := stories(f)
	f.Fuzz(func(t *testing.T, steps []byte) {
		for _, s := range all {
			s.t = t
			s.tell(steps[:min(len(steps), 100)])
		}
	})
}
