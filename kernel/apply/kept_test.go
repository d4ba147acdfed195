// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/root"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestKeptRealV1(t *testing.T) { testKept(t, node.CgroupV1, realV1) }

func TestKeptRealV2(t *testing.T) { testKept(t, node.CgroupV2, realV2) }

func testKept(t *testing.T, v node.CgroupVersion, tree func(testing.TB) *realTree) {
	t.Helper()
	onTrees(t, v, tree, (*realTree).keeping, map[string]func(*keeping){
		"one file": (*keeping).oneFile, "start": (*keeping).start, "limit": (*keeping).limit, "successor": (*keeping).successor,
		"observed": (*keeping).observed, "crowd": (*keeping).crowd, "lowered": (*keeping).lowered,
	})
}

// keeping is an Applier on the subtree whose container is given bursts.
type keeping struct {
	*apply.Applier
	t         *testing.T
	r         *realTree
	l         *ledger
	dir, file string
	other     int // a file with another burst
	open      int // descriptors before the first burst
}

func (r *realTree) keeping(t *testing.T) *keeping {
	t.Helper()
	k := &keeping{t: t, r: r, l: &ledger{}}
	target := r.ctr(plan.CPUBurst, 0).Target
	var err error
	if k.Applier, err = apply.New(k.options()); err != nil {
		t.Fatal(err)
	}
	if k.dir, err = r.fs.Dir(target, plan.CPUBurst); err != nil {
		t.Fatal(err)
	}
	if k.file, err = r.fs.Path(target, plan.CPUBurst); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir() + "/other"
	k.must(os.WriteFile(other, []byte("20000\n"), 0o600))
	if k.other, err = unix.Open(other, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.must(unix.Close(k.other)) })
	k.quota()
	k.open = descriptors(t)
	return k
}

func (k *keeping) options() apply.Options {
	return apply.Options{FS: k.r.fs, Roots: root.Default(), Journal: k.l, KeepBursts: true}
}

// quota makes room for the bursts.
func (k *keeping) quota() {
	k.t.Helper()
	p := plan.Plan{k.r.pod(plan.CPUQuota, 90000), k.r.ctr(plan.CPUQuota, 60000)}
	for _, r := range k.Apply(k.t.Context(), p, 1) {
		if r.Err != nil {
			k.t.Fatal(r.Err)
		}
	}
}

// write asks for a burst, and holds the outcome, what stands in the kernel and how many files are open then against what is wanted.
func (k *keeping) write(burst int64, want apply.Outcome, stands string, kept int) {
	k.t.Helper()
	res := k.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, burst)}, 1)
	if got, err := root.Read(k.file); res[0].Outcome != want || got != stands || err != nil {
		k.t.Errorf("%d: %s, %v; the kernel has %s, want %s, %v", burst, res[0].Outcome, res[0].Err, got, stands, err)
	}
	k.keeps(kept)
}

func (k *keeping) keeps(want int) {
	k.t.Helper()
	counted, open := k.Kept()
	if n := descriptors(k.t) - k.open; n != want || counted != want || open != want {
		k.t.Errorf("%d descriptors more than before, %d kept, %d counted: want %d", n, open, counted, want)
	}
}

// recorded holds the last record of a knob against the kernel.
func (k *keeping) recorded(knob plan.Knob, original string) {
	k.t.Helper()
	inode, err := root.Inode(k.dir)
	for _, last := range slices.Backward(k.l.all()) {
		if last.Knob != knob.String() {
			continue
		}
		if err != nil || last.Inode != inode || len(last.Original) != 1 || original != "" && last.Original[0] != original {
			k.t.Errorf("record %+v, want inode %d and the original %s; %v", last, inode, original, err)
		}
		return
	}
	k.t.Errorf("no record of %s", knob)
}

// anew removes the container's cgroup and makes it again.
func (k *keeping) anew() {
	k.t.Helper()
	for _, err := range []error{os.Remove(k.dir), os.Mkdir(k.dir, 0o755)} {
		if err != nil {
			k.t.Fatal(err)
		}
	}
}

// instead has other stand in the place of the open file while f runs.
func (k *keeping) instead(other int, f func()) {
	k.t.Helper()
	hidden := openAs(k.t, k.file)
	aside, err := unix.Dup(hidden)
	k.must(err)
	k.must(unix.Dup3(other, hidden, unix.O_CLOEXEC))
	f()
	k.must(unix.Dup3(aside, hidden, unix.O_CLOEXEC))
	k.must(unix.Close(aside))
}

func (k *keeping) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeping) forget() {
	k.t.Helper()
	k.must(k.Forget(k.r.ctr(plan.CPUBurst, 0).Target))
	k.keeps(0)
}

// oneFile writes a container's burst several times through one open file, and through another one when another container has taken the place of
// the first.
func (k *keeping) oneFile() {
	k.t.Helper()
	k.write(50000, apply.Written, "50000", 1)
	k.recorded(plan.CPUBurst, "0")
	k.write(30000, apply.Written, "30000", 1)
	k.recorded(plan.CPUBurst, "50000")
	k.instead(k.other, func() {
		if r := k.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 20000)}, 1); r[0].Outcome != apply.Unchanged {
			k.t.Errorf("another file than the open one is used: %s, %v", r[0].Outcome, r[0].Err)
		}
	})

	k.anew()
	k.quota()
	k.write(40000, apply.Written, "40000", 1)
	k.recorded(plan.CPUBurst, "0")
	for _, r := range k.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 20000), k.r.ctr(plan.CPUShares, 300)}, 1) {
		if r.Outcome != apply.Written {
			k.t.Error(r.Outcome, r.Err)
		}
	}
	k.recorded(plan.CPUBurst, "40000")
	k.recorded(plan.CPUShares, "")
	k.moved()
	k.forget()
	k.write(20000, apply.Unchanged, "20000", 1) // as after a restart
	k.forget()
}

// moved has a hand put the container's cgroup aside and make another one, which v1 allows: what is written there is recorded as that one's.
func (k *keeping) moved() {
	k.t.Helper()
	aside := k.dir + "-aside"
	if err := os.Rename(k.dir, aside); err != nil {
		return // v2
	}
	k.must(os.Mkdir(k.dir, 0o755))
	k.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 30000), k.r.ctr(plan.CPUShares, 400)}, 1)
	k.recorded(plan.CPUShares, "")
	k.must(os.Remove(k.dir))
	k.must(os.Rename(aside, k.dir))
	k.quota()
	k.write(20000, apply.Written, "20000", 1)
}

// start keeps a file beside what is to be given back later.
func (k *keeping) start() {
	k.t.Helper()
	p := plan.Plan{k.r.ctr(plan.CPUBurst, 40000), k.r.ctr(plan.CPUShares, 300)}
	_, bad, release := k.Start(k.t.Context(), p[0].Target, p, p, 1)
	if _, known := k.Last(p[0].ID()); !known || bad != nil {
		k.t.Errorf("started: the burst is known to be ours: %t; %v", known, bad)
	}
	if counted, open := k.Kept(); counted != 1 || open != 1 {
		k.t.Errorf("started: %d kept, %d counted", open, counted)
	}
	release()
	k.keeps(1)
	k.write(20000, apply.Written, "20000", 1)
	k.forget()
}

// observed leaves the file of a cgroup that was removed out of the record of a burst that is only looked at.
func (k *keeping) observed() {
	k.t.Helper()
	k.write(30000, apply.Written, "30000", 1)
	k.anew()
	seen := k.r.ctr(plan.CPUBurst, 20000)
	seen.Observe = true
	k.Apply(k.t.Context(), plan.Plan{seen}, 1)
	inode, err := root.Inode(k.dir)
	k.must(err)
	if all := k.l.all(); all[len(all)-1].Inode != inode {
		k.t.Errorf("record %+v, want inode %d", all[len(all)-1], inode)
	}
	k.must(k.Forget(seen.Target))
	k.keeps(0)
}

// limit keeps no more than it may.
func (k *keeping) limit() {
	k.t.Helper()
	k.KeepMost(1)
	for range 3 {
		k.Apply(k.t.Context(), plan.Plan{k.r.pod(plan.CPUBurst, 30000), k.r.ctr(plan.CPUBurst, 30000)}, 1)
		k.keeps(1)
		k.Apply(k.t.Context(), plan.Plan{k.r.pod(plan.CPUBurst, 20000), k.r.ctr(plan.CPUBurst, 20000)}, 1)
		k.keeps(1)
	}
	k.must(k.Forget(k.r.pod(plan.CPUBurst, 0).Target, k.r.ctr(plan.CPUBurst, 0).Target))
	k.write(30000, apply.Written, "30000", 1)
	k.anew() // what is kept is dead, and nobody forgets it
	k.quota()
	k.Apply(k.t.Context(), plan.Plan{k.r.pod(plan.CPUBurst, 30000)}, 1)
	if at := openAs(k.t, strings.Replace(k.file, "/pod/c/", "/pod/", 1)); at < 0 {
		k.t.Error("a dead file keeps the place of one that is written")
	}
	k.keeps(1)
	k.KeepMost(2)
	k.Apply(k.t.Context(), plan.Plan{k.r.pod(plan.CPUBurst, 20000), k.r.ctr(plan.CPUBurst, 30000)}, 1)
	k.keeps(2)
	k.Close()
	k.keeps(0)
	k.write(20000, apply.Written, "20000", 0)
}

// crowd has several write at once: each may have opened a file of its own, and one is kept.
func (k *keeping) crowd() {
	k.t.Helper()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 300 {
				k.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, int64(1000*(8*n+i+1))%50000+1000)}, 1)
				if n%10 != i {
					continue
				}
				if err := k.Forget(k.r.ctr(plan.CPUBurst, 0).Target); err != nil {
					k.t.Error(err)
				}
			}
		})
	}
	all.Wait()
	k.write(60000, apply.Written, "60000", 1)
	k.forget()
}

// successor takes what is kept along.
func (k *keeping) successor() {
	k.t.Helper()
	k.write(50000, apply.Written, "50000", 1)
	next, err := apply.New(k.options())
	k.must(err)
	next.Inherit(k.Applier)
	if counted, open := next.Kept(); counted != 1 || open != 1 {
		k.t.Errorf("the successor has %d, counted %d", open, counted)
	}
	k.instead(k.other, func() {
		if r := next.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 20000)}, 1); r[0].Outcome != apply.Unchanged {
			k.t.Errorf("the successor does not use it: %s, %v", r[0].Outcome, r[0].Err)
		}
	})
	next.Close()
	k.write(10000, apply.Written, "10000", 0) // whose successor is at work keeps nothing
}

// lowered holds a burst that falls through its open file, without a session, against one that falls like any other value: what stands, what is
// told and what is recorded. What is not to be lowered so is left to the others' way.
func (k *keeping) lowered() {
	k.t.Helper()
	k.write(50000, apply.Written, "50000", 1)
	next, err := apply.New(k.options())
	k.must(err)
	next.Inherit(k.Applier)
	defer next.Close()
	lower := func(burst int64, sessions int) apply.Result {
		k.t.Helper()
		r := next.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, burst)}, 1)[0]
		if n := next.Sessions(); n != sessions {
			k.t.Errorf("%d: %d sessions, want %d", burst, n, sessions)
		}
		if r.Took == 0 {
			k.t.Errorf("%d: %+v", burst, r)
		}
		r.Took = 0
		return r
	}
	lines := func(from int) []journal.Record {
		out := k.l.all()[from:]
		for i := range out {
			out[i].Time = time.Time{}
		}
		return out
	}

	before := len(k.l.all())
	quick := lower(30000, 0)
	if got, err := root.Read(k.file); got != "30000" || err != nil {
		k.t.Errorf("the kernel has %s, %v", got, err)
	}
	k.recorded(plan.CPUBurst, "50000")
	quickly := lines(before)
	if last, ok := next.Last(quick.Setting.ID()); !ok || last != plan.Int(30000) {
		k.t.Errorf("last written: %s, %t", last, ok)
	}
	if r := next.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 30000)}, 1)[0]; r.Outcome != apply.Unchanged || len(lines(before)) != len(quickly) {
		k.t.Errorf("once more: %s, %+v", r.Outcome, lines(before))
	}

	lower(50000, 1) // it grows
	next.DropKept(quick.Setting.Target)
	before = len(k.l.all())
	slow := lower(30000, 1)
	if diff := cmp.Diff(slow, quick, cmp.AllowUnexported(plan.Value{})); diff != "" {
		k.t.Errorf("(-like any other +lowered):\n%s", diff)
	}
	if diff := cmp.Diff(lines(before), quickly); diff != "" {
		k.t.Errorf("records (-like any other +lowered):\n%s", diff)
	}

	k.instead(k.readOnly("30000\n"), func() {
		if r := next.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 20000)}, 1)[0]; r.Outcome != apply.Failed {
			k.t.Errorf("a write that is refused: %s, %v", r.Outcome, r.Err)
		}
	})
	if last, ok := next.Last(quick.Setting.ID()); !ok || last != plan.Int(30000) {
		k.t.Errorf("after a write that was refused: %s, %t", last, ok)
	}
	if last := lines(0)[len(lines(0))-1]; last.Err == "" || last.Want != "20000" {
		k.t.Errorf("a write that was refused is not taken back: %+v", last)
	}

	k.must(root.Write(k.file, "40000")) // a hand
	before = len(k.l.all())
	lower(20000, 1)
	if rs := lines(before); len(rs) != 1 || !rs[0].Theirs || rs[0].Found != "40000" {
		k.t.Errorf("over a hand's: %+v", rs)
	}
	k.l.err = errors.New("full")
	if r := next.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 10000)}, 1)[0]; !errors.Is(r.Err, apply.ErrLedger) {
		k.t.Errorf("what cannot be recorded: %s, %v", r.Outcome, r.Err)
	}
	k.l.err = nil
	if got, err := root.Read(k.file); got != "20000" || err != nil {
		k.t.Errorf("not recorded, and the kernel has %s, %v", got, err)
	}

	k.anew()
	k.quota()
	k.must(root.Write(k.file, "15000"))
	next.Apply(k.t.Context(), plan.Plan{k.r.ctr(plan.CPUBurst, 10000)}, 1)
	k.recorded(plan.CPUBurst, "15000") // of the container that stands there now
	k.heir(next)
}

// heir is closed while it lowers a burst that it has from a former Applier, and tells the end of the cgroup that it has lowered it in.
func (k *keeping) heir(former *apply.Applier) {
	k.t.Helper()
	heir, err := apply.New(k.options())
	k.must(err)
	heir.Inherit(former)
	heir.KeepMost(0)
	burst := k.r.ctr(plan.CPUBurst, 5000)
	if r := heir.Apply(k.t.Context(), plan.Plan{burst}, 1)[0]; r.Outcome != apply.Written || heir.Sessions() != 0 {
		k.t.Errorf("an heir: %s, %v, %d sessions", r.Outcome, r.Err, heir.Sessions())
	}
	if counted, open := heir.Kept(); counted != 0 || open != 0 {
		k.t.Errorf("closed meanwhile, and %d kept, %d counted", open, counted)
	}
	inode, err := root.Inode(k.dir)
	k.must(err)
	k.must(heir.Forget(burst.Target))
	if all := k.l.all(); all[len(all)-1].Via != journal.ViaGone || all[len(all)-1].Inode != inode {
		k.t.Errorf("its end: %+v, want inode %d", all[len(all)-1], inode)
	}
}

// readOnly is a file that cannot be written.
func (k *keeping) readOnly(content string) int {
	k.t.Helper()
	name := k.t.TempDir() + "/readonly"
	k.must(os.WriteFile(name, []byte(content), 0o600))
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	k.must(err)
	k.t.Cleanup(func() { k.must(unix.Close(fd)) })
	return fd
}

// openAs is this process's descriptor of a file.
func openAs(t *testing.T, file string) int {
	t.Helper()
	real, err := filepath.EvalSymlinks(file) // where systemd mounts v1, cpu is a link
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if at, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && at == real {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				t.Fatal(err)
			}
			return fd
		}
	}
	t.Fatalf("%s is not open", file)
	return -1
}
